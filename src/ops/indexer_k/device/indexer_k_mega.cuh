// indexer_k in the persistent kernel: the finalizer of its GEMM, some rows an instruction.
// Arithmetic and order are those of indexer_k.cuh, where the sums meet in a cluster.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/indexer_k/device/indexer_k.cuh"
#include "ops/indexer_k/indexer_k_abi.h"

namespace megartp::device {

// A warp has tokens warp, warp + 4, ... of the tile.
template <uint32_t kOp>
struct IndexerKFinalizeMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = false;

  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext&) {}
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const uint32_t* w = c.payload();
    const auto& spec = c.spec<ops::IndexerKSpec>();
    const IndexerRowOptions options{spec.rope, spec.interleave, spec.hadamard, spec.pow2_scale};
    const uint32_t lane = lane_index();
    const uint2 gain = load_weight(c.operand<const uint2>(ops::kIndexerKNormW) + lane);
    const uint2 bias = load_weight(c.operand<const uint2>(ops::kIndexerKNormB) + lane);
    const uint64_t split_stride = uint64_t{w[2]} * 128;
    for (uint32_t i = warp_index(); i < w[1]; i += kMegaConsumerWarps) {
      const uint32_t row = w[0] + i;
      const int32_t position = c.operand<const int32_t>(ops::kIndexerKPositions)[row];
      const int32_t slot = c.operand<const int32_t>(ops::kIndexerKSlotMapping)[row];
      // As on the CPU: a row whose position or slot is out of range is dropped.
      if (position < 0 || position >= spec.num_positions || slot < 0 || slot >= spec.num_pages * 64) continue;
      const RopeFactors rope =
          load_rope(c.operand<const float>(ops::kIndexerKCosSin) + uint64_t(position) * spec.rope, options);
      c.wait_inputs_ready();
      float v[4];
      sum_split_row(c.operand<const float>(ops::kIndexerKPartial) + uint64_t{row} * 128, split_stride, spec.gemm.splits,
                    v);
      layer_norm(v, gain, bias, spec.eps);
      float scale;
      const uint32_t codes = indexer_row(v, rope, options, &scale);
      store_key(c.operand<uint8_t>(ops::kIndexerKCache), slot, codes, scale);
    }
  }
};

}  // namespace megartp::device
