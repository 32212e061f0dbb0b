// indexer_q: an N tile is one head of 128; the CTAs of a cluster are the K splits of one head and M tile. CTA r
// finalizes tokens r, r + splits, ... (split_rows.cuh): RoPE, quantisation, and the gate folded in.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/indexer_row.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/common/device/split_rows.cuh"

namespace megartp::device {

struct IndexerQParams {
  TensorMap x_map;        // E4M3 [M, K]
  TensorMap w_map;        // E4M3 [heads * 128, K]
  const uint8_t* pieces;  // tiled layout
  const float* w_scale;   // F32 [heads, K blocks]
  const float* x_scale;   // F32 [M, K blocks]
  const float* gate_partials;  // F32 [slices, M, heads]
  const int32_t* positions;
  const float* cos_sin;   // F32 [POS, rope]
  uint32_t* q;            // E4M3 [M, heads, 128]
  float* q_scale;         // F32 [M, heads]
  float* weights;         // F32 [M, heads]
  float* gate;            // F32 [M, heads]
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

// Grid: heads x splits (cluster of kSplits along x), M tiles. kGateLoads * 32 >= slices.
template <class S, int kSplits, int kGateLoads, int kWait>
__global__ void __launch_bounds__(S::kThreads) indexer_q(const __grid_constant__ IndexerQParams p) {
  extern __shared__ uint8_t dynamic[];
  const GemmSmem<S> smem(dynamic, ceil_div(p.k_blocks, kSplits));
  const SplitRows<S, kSplits> rows(smem, ceil_div(p.k_blocks, kSplits));
  const KernelFrame<kWait, true> frame;
  const uint32_t m_begin = blockIdx.y * S::kTileM;
  const uint32_t m_count = min(static_cast<uint32_t>(S::kTileM), p.m - m_begin);
  if (threadIdx.x == 0) {
    rows.init(m_count);
    smem.init();
  }
  frame.enter();
  __syncthreads();
  // Nobody sends to a CTA whose barrier is not ready.
  if constexpr (kSplits > 1) cluster_sync_relaxed();
  frame.after_prologue();

  const uint32_t split = blockIdx.x % kSplits;
  const uint32_t head = blockIdx.x / kSplits;
  const BlockRange range = split_blocks(p.k_blocks, kSplits, split);
  GemmTile t;
  t.piece_row_bytes = p.k_blocks * kPieceBytes;
  t.pieces = p.pieces + uint64_t{head} * 2 * t.piece_row_bytes + range.begin * kPieceBytes;
  t.w_map = &p.w_map;
  t.n_begin = head * 128;
  t.w_scale = p.w_scale + uint64_t{head} * p.k_blocks + range.begin;
  t.x_map = &p.x_map;
  t.x_scale = p.x_scale + range.begin;
  t.x_scale_stride = p.k_blocks;
  t.m_begin = m_begin;
  t.m_count = m_count;
  t.block_begin = range.begin;
  t.block_count = range.count;

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
      if (token < t.m_count) rope[i] = load_rope(p.cos_sin + uint64_t(p.positions[t.m_begin + token]) * p.rope, options);
    }
    load_weight_scales(smem, t, threadIdx.x);
    frame.wait_inputs();
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const uint32_t token = split + kSplits * (threadIdx.x / 32 + kWarps * i);
#pragma unroll
      for (int g = 0; g < kGateLoads; ++g) {
        const uint32_t slice = g * 32 + lane;
        gate[i][g] = token < t.m_count && slice < p.slices
                         ? load_global(p.gate_partials + (uint64_t{slice} * p.m + t.m_begin + token) * p.heads + head)
                         : 0.0F;
      }
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
    // Nobody leaves while the copy engine still reads its rows: they have arrived when every receiver has come here.
    if constexpr (kSplits > 1) cluster_sync_relaxed();
  }
}

}  // namespace megartp::device
