// indexer_k: one N tile of 128; the CTAs of a cluster are the K splits of one M tile. CTA r finalizes tokens r, r +
// splits, ... (split_rows.cuh): LayerNorm, RoPE, quantisation, key and scale into the cache.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/indexer_row.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/common/device/split_rows.cuh"

namespace megartp::device {

struct IndexerKParams {
  TensorMap x_map;        // E4M3 [M, K]
  TensorMap w_map;        // E4M3 [128, K]
  const uint8_t* pieces;  // tiled layout
  const float* w_scale;   // F32 [1, K blocks]
  const float* x_scale;   // F32 [M, K blocks]
  const uint2* norm_w;    // BF16 [128]
  const uint2* norm_b;    // BF16 [128]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  const int32_t* slot_mapping;
  uint8_t* cache;  // pages of 64 keys of 128 bytes, then 64 scales
  uint32_t m;
  uint32_t k_blocks;
  uint32_t num_positions;
  uint32_t num_slots;
  float eps;
  uint32_t rope;
  uint32_t interleave;
  uint32_t hadamard;
  uint32_t pow2_scale;
};

// v: this lane's four of 128 sums of a row, rounded to BF16 and normalised; `gain` and `bias` are BF16.
__device__ inline void layer_norm(float (&v)[4], const uint2& gain, const uint2& bias, float eps) {
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k] = round_bf16(v[k]);
    sum += v[k];
  }
  const float mean = __fdiv_rn(warp_sum(sum), 128.0F);
  float squares = 0.0F;
#pragma unroll
  for (int k = 0; k < 4; ++k) squares += (v[k] - mean) * (v[k] - mean);
  const float factor = norm_factor(warp_sum(squares), 128.0F, eps);
  const float g[4] = {bf16_low(gain.x), bf16_high(gain.x), bf16_low(gain.y), bf16_high(gain.y)};
  const float b[4] = {bf16_low(bias.x), bf16_high(bias.x), bf16_low(bias.y), bf16_high(bias.y)};
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = (v[k] - mean) * factor * g[k] + b[k];
}

// This lane's four codes of the key, and its scale, to its place in the cache.
__device__ inline void store_key(uint8_t* cache, int32_t slot, uint32_t codes, float scale) {
  uint8_t* page = cache + uint64_t(slot / 64) * (64 * 132);
  *reinterpret_cast<uint32_t*>(page + slot % 64 * 128 + lane_index() * 4) = codes;
  if (lane_index() == 0) *reinterpret_cast<float*>(page + 64 * 128 + slot % 64 * 4) = scale;
}

// Grid: splits (cluster of kSplits along x), M tiles.
template <class S, int kSplits, int kWait>
__global__ void __launch_bounds__(S::kThreads, S::kExact ? 1 : 0) indexer_k(const __grid_constant__ IndexerKParams p) {
  extern __shared__ uint8_t dynamic[];
  const GemmSmem<S> smem(dynamic, ceil_div(p.k_blocks, kSplits));
  const SplitRows<S, kSplits> rows(smem, ceil_div(p.k_blocks, kSplits));
  const KernelFrame<kWait> frame;
  const uint32_t m_begin = blockIdx.y * S::kTileM;
  const uint32_t m_count = min(static_cast<uint32_t>(S::kTileM), p.m - m_begin);
  rows.start(smem, frame, m_count);

  const uint32_t split = blockIdx.x;
  const BlockRange range = split_blocks(p.k_blocks, kSplits, split);
  const GemmTile t = gemm_tile<S>(p.x_map, p.x_scale, p.w_map, p.pieces, p.w_scale, p.k_blocks, 128, 0, p.m, m_begin,
                                  range.begin, range.count);

  if (is_weight_loader<S>()) {
    load_weights(smem, t);
  } else if (is_activation_loader<S>()) {
    load_activations(smem, t, frame);
  } else {
    constexpr int kWarps = S::kConsumers / 32;
    constexpr int kTokens = (S::kTileM + kSplits * kWarps - 1) / (kSplits * kWarps);  // of a warp
    const IndexerRowOptions options{p.rope, p.interleave, p.hadamard, p.pow2_scale};
    const uint32_t lane = lane_index();
    // Arguments and weights: constant while anything runs.
    const uint2 gain = load_weight(p.norm_w + lane);
    const uint2 bias = load_weight(p.norm_b + lane);
    RopeFactors rope[kTokens];
    int32_t slot[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const uint32_t token = split + kSplits * (threadIdx.x / 32 + kWarps * i);
      slot[i] = -1;
      if (token >= t.m_count) continue;
      const int32_t position = p.positions[t.m_begin + token];
      // As on the CPU: a row whose position or slot is out of range is dropped.
      if (position < 0 || position >= p.num_positions) continue;
      slot[i] = p.slot_mapping[t.m_begin + token];
      if (slot[i] >= p.num_slots) slot[i] = -1;
      rope[i] = load_rope(p.cos_sin + uint64_t(position) * p.rope, options);
    }
    load_weight_scales(smem, t, threadIdx.x);
    GemmSums<S> sums;
    multiply(smem, t, threadIdx.x, frame, sums);

    rows.send(smem, sums, threadIdx.x, t.m_count);
    rows.wait();
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (slot[i] < 0) continue;
      float v[4];
      rows.sum(threadIdx.x / 32 + kWarps * i, v);
      layer_norm(v, gain, bias, p.eps);
      float scale;
      const uint32_t codes = indexer_row(v, rope[i], options, &scale);
      store_key(p.cache, slot[i], codes, scale);
    }
    rows.finish();
  }
  rows.leave();
}

}  // namespace megartp::device
