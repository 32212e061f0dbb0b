// indexer_k: split-K GEMM of one 128-wide N tile; the last CTA of an M tile to arrive adds the partials in ascending order and writes
// the tile's keys into the cache: LayerNorm, RoPE, one FP8 group a row.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/indexer_row.cuh"
#include "ops/common/device/row_finalize.cuh"

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
  const float* cos_sin;   // F32 [POS, rope]
  const int32_t* slot_mapping;
  uint8_t* cache;         // pages of 64 keys of 128 bytes, then 64 scales
  float* partial;         // F32 [splits, M, 128]
  uint32_t* arrived;      // [M tiles], a multiple of `splits` between runs
  uint32_t m;
  uint32_t k_blocks;
  uint32_t splits;
  uint32_t num_positions;
  uint32_t num_slots;
  float eps;
  uint32_t rope;
  uint32_t interleave;
  uint32_t hadamard;
  uint32_t pow2_scale;
};

// Past the L1, which may hold what stood there before another CTA wrote.
__device__ inline float4 load_from_l2(const float4* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  return v;
}

// One row by one warp.
template <int kMaxSplits>
__device__ void finalize_key(const IndexerKParams& p, uint32_t row) {
  const uint32_t lane = lane_index();
  const int32_t position = p.positions[row];
  const int32_t slot = p.slot_mapping[row];
  float4 part[kMaxSplits];
#pragma unroll
  for (int s = 0; s < kMaxSplits; ++s)
    if (s < p.splits) part[s] = load_from_l2(reinterpret_cast<const float4*>(p.partial + (uint64_t(s) * p.m + row) * 128) + lane);
  const uint2 gain = load_weight(p.norm_w + lane);
  const uint2 bias = load_weight(p.norm_b + lane);
  // As on the CPU: a row whose position or slot is out of range is dropped.
  if (position < 0 || position >= p.num_positions || slot < 0 || slot >= p.num_slots) return;
  const IndexerRowOptions options{p.rope, p.interleave, p.hadamard, p.pow2_scale};
  const RopeFactors rope = load_rope(p.cos_sin + uint64_t(position) * p.rope, options);
  float v[4] = {part[0].x, part[0].y, part[0].z, part[0].w};
#pragma unroll
  for (int s = 1; s < kMaxSplits; ++s)
    if (s < p.splits) v[0] += part[s].x, v[1] += part[s].y, v[2] += part[s].z, v[3] += part[s].w;
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = round_bf16(v[i]);
    sum += v[i];
  }
  const float mean = __fdiv_rn(warp_sum(sum), 128.0F);
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) squares += (v[i] - mean) * (v[i] - mean);
  const float factor = norm_factor(warp_sum(squares), 128.0F, p.eps);
  const float g[4] = {bf16_low(gain.x), bf16_high(gain.x), bf16_low(gain.y), bf16_high(gain.y)};
  const float b[4] = {bf16_low(bias.x), bf16_high(bias.x), bf16_low(bias.y), bf16_high(bias.y)};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = (v[i] - mean) * factor * g[i] + b[i];
  float scale;
  const uint32_t codes = indexer_row(v, rope, options, &scale);
  uint8_t* page = p.cache + uint64_t(slot / 64) * (64 * 132);
  *reinterpret_cast<uint32_t*>(page + slot % 64 * 128 + lane * 4) = codes;
  if (lane == 0) *reinterpret_cast<float*>(page + 64 * 128 + slot % 64 * 4) = scale;
}

// Grid: splits, M tiles.
template <class S, int kMaxSplits, int kWait>
__global__ void __launch_bounds__(S::kThreads) indexer_k(const __grid_constant__ IndexerKParams p) {
  extern __shared__ uint8_t dynamic[];
  __shared__ uint32_t is_last;
  const GemmSmem<S> smem(dynamic, ceil_div(p.k_blocks, p.splits));
  const KernelFrame<kWait> frame;
  if (threadIdx.x == 0) smem.init();
  frame.enter();
  __syncthreads();
  frame.after_prologue();

  const uint32_t split = blockIdx.x;
  const BlockRange range = split_blocks(p.k_blocks, p.splits, split);
  GemmTile t;
  t.piece_row_bytes = p.k_blocks * kPieceBytes;
  t.pieces = p.pieces + range.begin * kPieceBytes;
  t.w_map = &p.w_map;
  t.n_begin = 0;
  t.w_scale = p.w_scale + range.begin;
  t.x_map = &p.x_map;
  t.x_scale = p.x_scale + range.begin;
  t.x_scale_stride = p.k_blocks;
  t.m_begin = blockIdx.y * S::kTileM;
  t.m_count = min(static_cast<uint32_t>(S::kTileM), p.m - t.m_begin);
  t.block_begin = range.begin;
  t.block_count = range.count;

  if (is_weight_loader<S>()) {
    load_weights(smem, t);
  } else if (is_activation_loader<S>()) {
    load_activations(smem, t, frame);
  } else {
    GemmSums<S> sums;
    multiply(smem, t, threadIdx.x, frame, sums);
    float* out = p.partial + (uint64_t{split} * p.m + t.m_begin) * 128;
    sums.for_each(threadIdx.x, [&](uint32_t n, uint32_t token, float v) {
      if (token < t.m_count) out[uint64_t{token} * 128 + n] = v;
    });
    // The barrier puts all stores of the CTA before thread 0's release; its acquire stands before everybody's loads.
    named_barrier(1, S::kConsumers);
    if (threadIdx.x == 0) {
      uint32_t before;
      asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(p.arrived + blockIdx.y) : "memory");
      is_last = (before + 1) % p.splits == 0;
    }
    named_barrier(1, S::kConsumers);
    if (is_last == 0) return;
    for (uint32_t token = threadIdx.x / 32; token < t.m_count; token += S::kConsumers / 32)
      finalize_key<kMaxSplits>(p, t.m_begin + token);
  }
}

}  // namespace megartp::device
