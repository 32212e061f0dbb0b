// Spec and payload of `gemm`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct GemmSpec {
  uint32_t n;
  uint32_t k;
};

// Payload: rows [m_begin, m_begin + m_count) and columns [n_begin, n_begin + n_count) of the output.
struct GemmPayload {
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t n_begin;
  uint32_t n_count;
};
inline constexpr uint32_t kGemmPayloadWords = 4;

// Operand row.
enum GemmSlot : uint32_t { kGemmX, kGemmW, kGemmOut };

}  // namespace megartp::ops
