// Spec, payload and operand row of `indexer_k`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

#include "ops/common/fp8_gemm_abi.h"

namespace megartp::ops {

// gemm.segment_rows = {head_dim, 0}.
struct IndexerKSpec {
  Fp8GemmSpec gemm;
  uint32_t rope;           // rotated dims, the first ones
  uint32_t num_positions;  // rows of cos_sin
  uint32_t num_pages;      // of the cache
  float eps;
  uint32_t interleave;  // flags: 0 or 1
  uint32_t hadamard;
  uint32_t pow2_scale;
};

// Payload of the fused and GEMM tiles: Fp8GemmPayload. Of the finalizer:
struct IndexerKFinalizePayload {
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t m_total;
};

// One layout for the three opcodes; a stage leaves out what it does not touch.
enum IndexerKSlot : uint32_t {
  kIndexerKX,
  kIndexerKXScale,
  kIndexerKWeight,
  kIndexerKWeightScale,
  kIndexerKNormW,
  kIndexerKNormB,
  kIndexerKPositions,
  kIndexerKCosSin,
  kIndexerKSlotMapping,
  kIndexerKCache,
  kIndexerKPartial,
  kIndexerKNumSlots,
};

inline constexpr uint32_t kIndexerKMaxDim = 4096;  // a row of the finalizer lies in scratch

}  // namespace megartp::ops
