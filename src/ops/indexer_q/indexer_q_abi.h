// Spec, payload and operand row of `indexer_q`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

#include "ops/common/fp8_gemm_abi.h"

namespace megartp::ops {

// gemm.segment_rows = {heads * head_dim, 0}; an N tile is one head.
struct IndexerQSpec {
  Fp8GemmSpec gemm;
  uint32_t heads;
  uint32_t head_dim;
  uint32_t rope;           // rotated dims of each head, the first ones
  uint32_t num_positions;  // rows of cos_sin
  uint32_t gate_splits;    // addends of the gate
  float score_scale;
  uint32_t interleave;  // flags: 0 or 1
  uint32_t hadamard;
  uint32_t pow2_scale;
};

// Payload of the fused and GEMM tiles: Fp8GemmPayload. Of the finalizer:
struct IndexerQFinalizePayload {
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t head;
  uint32_t m_total;
};

// One layout for the three opcodes; a stage leaves out what it does not touch.
enum IndexerQSlot : uint32_t {
  kIndexerQX,
  kIndexerQXScale,
  kIndexerQWeight,
  kIndexerQWeightScale,
  kIndexerQGatePartials,
  kIndexerQPositions,
  kIndexerQCosSin,
  kIndexerQPartial,
  kIndexerQQ,
  kIndexerQScale,
  kIndexerQWeights,
  kIndexerQGate,
  kIndexerQNumSlots,
};

inline constexpr uint32_t kIndexerQMaxDim = 4096;  // a row of the finalizer lies in scratch

}  // namespace megartp::ops
