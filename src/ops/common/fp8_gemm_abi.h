// Spec and payload of split-K FP8 GEMM tiles, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

#include "abi/host_device.h"

namespace megartp::ops {

inline constexpr uint32_t kMaxGemmSegments = 2;

// Static numbers, as u32 words of a family's spec.
struct Fp8GemmSpec {
  uint32_t k;
  uint32_t splits;
  uint32_t segment_rows[kMaxGemmSegments];  // weight rows; 0 = no such segment
};
MEGARTP_HOST_DEVICE inline uint32_t total_n(const Fp8GemmSpec& spec) {
  return spec.segment_rows[0] + spec.segment_rows[1];
}

// A tile's payload, in word order; a family may add up to two words.
struct Fp8GemmPayload {
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t n_begin;  // in the concatenation of the segments
  uint32_t n_count;
  uint32_t split;
  uint32_t m_total;
};
inline constexpr uint32_t kFp8GemmPayloadWords = 6;

// Of the tile's operand row, what the code that the families share in the persistent kernel calls its i-th.
enum SplitGemmSlot : uint32_t { kSplitGemmXScale, kSplitGemmWeight, kSplitGemmWeightScale, kSplitGemmPartial };

}  // namespace megartp::ops
