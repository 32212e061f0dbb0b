// Spec and payload of `head_gate`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct HeadGateSpec {
  uint32_t hidden;
  uint32_t heads;
};

// Payload: rows [m_begin, m_begin + m_count) of `rows`, hidden columns [128 * slice, min(hidden, 128 * (slice + 1))).
struct HeadGatePayload {
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t slice;
  uint32_t rows;  // all rows of y: the stride of a slice of the partials
};
inline constexpr uint32_t kHeadGatePayloadWords = 4;

// Operand row.
enum HeadGateSlot : uint32_t { kHeadGateY, kHeadGateW, kHeadGatePartials };

}  // namespace megartp::ops
