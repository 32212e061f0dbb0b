// What the finalizers of split-K GEMMs share.
#pragma once

#include "device/numeric.cuh"

namespace megartp::device {

struct BlockRange {
  uint32_t begin;
  uint32_t count;
};
// As ops::split_range, in K blocks.
__device__ inline BlockRange split_blocks(uint32_t blocks, uint32_t splits, uint32_t i) {
  const uint32_t base = blocks / splits;
  const uint32_t extra = blocks % splits;
  return {i * base + min(i, extra), base + (i < extra ? 1U : 0U)};
}

// Sum over a CTA of kThreads, the same in all threads; fixed order. `slots` has one float a warp.
template <int kThreads>
__device__ inline float cta_sum(float v, float* slots) {
  v = warp_sum(v);
  if (lane_index() == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += slots[i];
  return sum;
}

// out[0..8) = partial[0] + partial[stride] + ..., splits ascending; all loads are in flight at once. kSplits >= splits.
template <int kSplits>
__device__ inline void sum_partials8(const float* partial, uint64_t stride, uint32_t splits, float (&out)[8]) {
  float4 a[kSplits];
  float4 b[kSplits];
#pragma unroll
  for (int s = 0; s < kSplits; ++s) {
    if (s < splits) {
      a[s] = load_global(reinterpret_cast<const float4*>(partial));
      b[s] = load_global(reinterpret_cast<const float4*>(partial) + 1);
      partial += stride;
    }
  }
  float4 x = a[0];
  float4 y = b[0];
#pragma unroll
  for (int s = 1; s < kSplits; ++s) {
    if (s < splits) {
      x.x += a[s].x, x.y += a[s].y, x.z += a[s].z, x.w += a[s].w;
      y.x += b[s].x, y.y += b[s].y, y.z += b[s].z, y.w += b[s].w;
    }
  }
  out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
  out[4] = y.x, out[5] = y.y, out[6] = y.z, out[7] = y.w;
}

// This lane's four of 128 sums of a row, splits ascending, up to 8: all loads are in flight at once.
__device__ inline void sum_split_row(const float* partial, uint64_t stride, uint32_t splits, float (&v)[4]) {
  constexpr int kMaxSplits = 8;
  float4 x[kMaxSplits];
  partial += lane_index() * 4;
#pragma unroll
  for (int s = 0; s < kMaxSplits; ++s) {
    if (s < splits) {
      x[s] = load_global(reinterpret_cast<const float4*>(partial));
      partial += stride;
    }
  }
  v[0] = x[0].x, v[1] = x[0].y, v[2] = x[0].z, v[3] = x[0].w;
#pragma unroll
  for (int s = 1; s < kMaxSplits; ++s)
    if (s < splits) v[0] += x[s].x, v[1] += x[s].y, v[2] += x[s].z, v[3] += x[s].w;
}

}  // namespace megartp::device
