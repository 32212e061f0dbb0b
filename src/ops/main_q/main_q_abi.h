// Spec, payload and operand row of `main_q`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

// N = heads * (nope + rope); nope and rope are even, so that no rotated pair straddles a tile edge.
struct MainQSpec {
  uint32_t k;
  uint32_t heads;
  uint32_t nope;
  uint32_t rope;
  uint32_t kv_lora;
};

struct MainQPayload {
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t n_begin;  // even
  uint32_t n_count;  // even, at most kBlockN
};
inline constexpr uint32_t kMainQPayloadWords = 4;

// Operand row.
enum MainQSlot : uint32_t {
  kMainQX,
  kMainQXScale,
  kMainQWeight,
  kMainQWeightScale,
  kMainQPositions,
  kMainQCosSin,
  kMainQNope,  // BF16 [M, heads, nope]
  kMainQOut,   // BF16 [M, heads, kv_lora + rope]
  kMainQNumSlots,
};

}  // namespace megartp::ops
