// indexer_q: an N tile is one head of 128; the CTAs of a cluster are the K splits of one head and M tile. CTA r
// finalizes tokens r, r + splits, ... (split_rows.cuh): RoPE, quantisation, and the gate folded in.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/indexer_row.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/common/device/split_rows.cuh"

namespace megartp::device {

struct IndexerQParams {
  TensorMap x_map;             // E4M3 [M, K]
  TensorMap w_map;             // E4M3 [heads * 128, K]
  const uint8_t* pieces;       // tiled layout
  const float* w_scale;        // F32 [heads, K blocks]
  const float* x_scale;        // F32 [M, K blocks]
  const float* gate_partials;  // F32 [slices, M, heads]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  uint32_t* q;           // E4M3 [M, heads, 128]
  float* q_scale;        // F32 [M, heads]
  float* weights;        // F32 [M, heads]
  float* gate;           // F32 [M, heads]
  uint32_t m;
  uint32_t k_blocks;
  uint32_t heads;
  uint32_t slices;
  float score_scale;
  uint32_t rope;
  uint32_t interleave;
  uint32_t hadamard;
  uint32_t pow2_scale;
};

// This lane's slices of the gate of a row and head; zeros when the row is not there.
template <int kGateLoads>
__device__ inline void load_gate(const IndexerQParams& p, uint32_t row, uint32_t head, bool is_there,
                                 float (&gate)[kGateLoads]) {
#pragma unroll
  for (int g = 0; g < kGateLoads; ++g) {
    const uint32_t slice = g * 32 + lane_index();
    gate[g] = is_there && slice < p.slices
                  ? load_global(p.gate_partials + (uint64_t{slice} * p.m + row) * p.heads + head)
                  : 0.0F;
  }
}

// Grid: heads x splits (cluster of kSplits along x), M tiles. kGateLoads * 32 >= slices.
template <class S, int kSplits, int kGateLoads, int kWait>
__global__ void __launch_bounds__(S::kThreads, S::kExact ? 1 : 0) indexer_q(const __grid_constant__ IndexerQParams p) {
  extern __shared__ uint8_t dynamic[];
  const GemmSmem<S> smem(dynamic, ceil_div(p.k_blocks, kSplits));
  const SplitRows<S, kSplits> rows(smem, ceil_div(p.k_blocks, kSplits));
  const KernelFrame<kWait, true> frame;
  const uint32_t m_begin = blockIdx.y * S::kTileM;
  const uint32_t m_count = min(static_cast<uint32_t>(S::kTileM), p.m - m_begin);
  rows.start(smem, frame, m_count);

  const uint32_t split = blockIdx.x % kSplits;
  const uint32_t head = blockIdx.x / kSplits;
  const BlockRange range = split_blocks(p.k_blocks, kSplits, split);
  const GemmTile t = gemm_tile<S>(p.x_map, p.x_scale, p.w_map, p.pieces, p.w_scale, p.k_blocks, p.heads * 128,
                                  head * 128, p.m, m_begin, range.begin, range.count);

  if (is_weight_loader<S>()) {
    load_weights(smem, t);
  } else if (is_activation_loader<S>()) {
    load_activations(smem, t, frame);
  } else {
    constexpr int kWarps = S::kConsumers / 32;
    constexpr int kTokens = (S::kTileM + kSplits * kWarps - 1) / (kSplits * kWarps);  // of a warp
    const IndexerRowOptions options{p.rope, p.interleave, p.hadamard, p.pow2_scale};
    const uint32_t lane = lane_index();
    RopeFactors rope[kTokens];
    float gate[kTokens][kGateLoads];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const uint32_t token = split + kSplits * (threadIdx.x / 32 + kWarps * i);
      if (token < t.m_count)
        rope[i] = load_rope(p.cos_sin + uint64_t(p.positions[t.m_begin + token]) * p.rope, options);
    }
    load_weight_scales(smem, t, threadIdx.x);
    frame.wait_inputs();
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const uint32_t token = split + kSplits * (threadIdx.x / 32 + kWarps * i);
      load_gate<kGateLoads>(p, t.m_begin + token, head, token < t.m_count, gate[i]);
    }
    GemmSums<S> sums;
    multiply(smem, t, threadIdx.x, frame, sums);
    frame.trigger();

    rows.send(smem, sums, threadIdx.x, t.m_count);
    rows.wait();
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const uint32_t token = split + kSplits * (threadIdx.x / 32 + kWarps * i);
      if (token >= t.m_count) continue;
      float v[4];
      rows.sum(threadIdx.x / 32 + kWarps * i, v);
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = round_bf16(v[k]);
      float scale;
      const uint32_t codes = indexer_row(v, rope[i], options, &scale);
      const uint64_t at = uint64_t{t.m_begin + token} * p.heads + head;
      p.q[at * 32 + lane] = codes;
      float g = 0.0F;
#pragma unroll
      for (int k = 0; k < kGateLoads; ++k) g += gate[i][k];
      g = warp_sum(g);
      if (lane == 0) {
        p.q_scale[at] = scale;
        p.gate[at] = g;
        p.weights[at] = g * scale * p.score_scale;
      }
    }
    rows.finish();
  }
  rows.leave();
}

}  // namespace megartp::device
