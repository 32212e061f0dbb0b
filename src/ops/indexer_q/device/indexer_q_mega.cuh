// indexer_q in the persistent kernel: the finalizer of its GEMM, one head and some rows an instruction. Arithmetic and
// order are those of indexer_q.cuh, where the sums meet in a cluster.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/indexer_q/device/indexer_q.cuh"
#include "ops/indexer_q/indexer_q_abi.h"

namespace megartp::device {

// A warp has tokens warp, warp + 4, ... of the tile.
template <uint32_t kOp>
struct IndexerQFinalizeMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = false;
  static constexpr int kGateLoads = 4;  // slices of the gate: 32 * kGateLoads at most

  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext&) {}
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const uint32_t* w = c.payload();
    const auto& spec = c.spec<ops::IndexerQSpec>();
    const IndexerRowOptions options{spec.rope, spec.interleave, spec.hadamard, spec.pow2_scale};
    const uint32_t head = w[2];
    const uint64_t split_stride = uint64_t{w[3]} * spec.heads * 128;
    IndexerQParams p;
    p.gate_partials = c.operand<const float>(ops::kIndexerQGatePartials);
    p.m = w[3];
    p.heads = spec.heads;
    p.slices = spec.gate_splits;
    const float* partial = c.operand<const float>(ops::kIndexerQPartial);
    // Two tokens at a time, and all loads of both: each takes a trip to the L2.
#pragma unroll 1
    for (uint32_t first = warp_index(); first < w[1]; first += kTokens * kMegaConsumerWarps) {
      RopeFactors rope[kTokens];
      float gate[kTokens][kGateLoads];
      float v[kTokens][4];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const uint32_t row = w[0] + min(first + t * kMegaConsumerWarps, w[1] - 1);
        const int32_t position = c.operand<const int32_t>(ops::kIndexerQPositions)[row];
        rope[t] = load_rope(c.operand<const float>(ops::kIndexerQCosSin) + uint64_t(position) * spec.rope, options);
      }
      c.wait_inputs_ready();
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const uint32_t row = w[0] + min(first + t * kMegaConsumerWarps, w[1] - 1);
        load_gate<kGateLoads>(p, row, head, true, gate[t]);
        sum_split_row(partial + (uint64_t{row} * spec.heads + head) * 128, split_stride, spec.gemm.splits, v[t]);
      }
#pragma unroll 1
      for (int t = 0; t < kTokens; ++t) {
        const uint32_t token = first + t * kMegaConsumerWarps;
        if (token < w[1]) store(c, spec, options, w[0] + token, head, rope[0], gate[0], v[0]);
        rope[0] = rope[1];
#pragma unroll
        for (int k = 0; k < kGateLoads; ++k) gate[0][k] = gate[1][k];
#pragma unroll
        for (int k = 0; k < 4; ++k) v[0][k] = v[1][k];
      }
    }
  }

 private:
  static constexpr int kTokens = 2;
  static_assert(kTokens == 2, "consume() moves the second to the first");

  __device__ __forceinline__ static void store(const MegaContext& c, const ops::IndexerQSpec& spec,
                                               const IndexerRowOptions& options, uint32_t row, uint32_t head,
                                               const RopeFactors& rope, const float (&gate)[kGateLoads],
                                               float (&v)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = round_bf16(v[k]);
    float scale;
    const uint32_t codes = indexer_row(v, rope, options, &scale);
    const uint64_t at = uint64_t{row} * spec.heads + head;
    c.operand<uint32_t>(ops::kIndexerQQ)[at * 32 + lane_index()] = codes;
    float g = 0.0F;
#pragma unroll
    for (int k = 0; k < kGateLoads; ++k) g += gate[k];
    g = warp_sum(g);
    if (lane_index() == 0) {
      c.operand<float>(ops::kIndexerQScale)[at] = scale;
      c.operand<float>(ops::kIndexerQGate)[at] = g;
      c.operand<float>(ops::kIndexerQWeights)[at] = g * scale * spec.score_scale;
    }
  }
};

}  // namespace megartp::device
