// What the generic kernels share: any dims, no alignment, sums in a fixed order. They stand in where the fast ones
// cannot go.
//
// A warp sums with a lane for every 32nd value and then by a butterfly; a CTA adds its warps in ascending order.
// Everything is read after the wait.
#pragma once

#include "device/frame.cuh"
#include "device/numeric.cuh"
#include "ops/common/device/row_finalize.cuh"

namespace megartp::device {

inline constexpr int kGenericThreads = 256;
inline constexpr uint32_t kGenericWarps = kGenericThreads / 32;

__device__ inline float bf16_value(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }
__device__ inline uint16_t bf16_bits(float x) { return static_cast<uint16_t>(pack_bf16(x, 0.0F)); }
__device__ inline float e4m3_value(uint8_t code) { return unpack_e4m3(code).x; }
__device__ inline uint8_t e4m3_code(float x) { return static_cast<uint8_t>(pack_e4m3(x, 0.0F)); }

// First warp or thread of a grid's stride, and the stride.
__device__ inline uint64_t grid_warp() { return uint64_t{blockIdx.x} * kGenericWarps + threadIdx.x / 32; }
__device__ inline uint64_t grid_warps() { return uint64_t{gridDim.x} * kGenericWarps; }
__device__ inline uint64_t grid_thread() { return uint64_t{blockIdx.x} * kGenericThreads + threadIdx.x; }
__device__ inline uint64_t grid_threads() { return uint64_t{gridDim.x} * kGenericThreads; }

// Maximum over a CTA, the same in all threads. `slots` has one float a warp; a barrier must stand before its next use.
__device__ inline float cta_max(float v, float* slots) {
  v = group_max<32>(v);
  if (lane_index() == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  float most = slots[0];
#pragma unroll
  for (uint32_t i = 1; i < kGenericWarps; ++i) most = fmaxf(most, slots[i]);
  return most;
}

// Quantises a group of up to 128 values, by a warp: value(i) for i < count; the scale comes back in all lanes.
template <class Value>
__device__ inline float quantize_group(uint32_t count, bool pow2, uint8_t* codes, const Value& value) {
  float v[4];
  float amax = 0.0F;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t at = i * 32 + lane_index();
    v[i] = at < count ? value(at) : 0.0F;
    amax = fmaxf(amax, fabsf(v[i]));
  }
  const float scale = group_scale(group_max<32>(amax), pow2);
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t at = i * 32 + lane_index();
    if (at < count) codes[at] = e4m3_code(__fdiv_rn(v[i], scale));
  }
  return scale;
}

struct Fp8GemmGenericParams {
  const uint8_t* x;      // E4M3 [M, K]
  const float* x_scale;  // F32 [M, K blocks]
  const uint8_t* w;      // E4M3 [N, K]
  const float* w_scale;  // F32 [ceil(N / 128), K blocks]
  float* out;            // F32 [M, stride]
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t stride;
  uint32_t column;  // of the first output
};

// A warp makes out[m, column + n]: lanes sum their values of each K block, scaled, in ascending blocks.
template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) fp8_gemm_generic(const __grid_constant__ Fp8GemmGenericParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint32_t blocks = ceil_div(p.k, 128);
  const uint32_t lane = lane_index();
  for (uint64_t i = grid_warp(); i < uint64_t{p.m} * p.n; i += grid_warps()) {
    const uint64_t m = i / p.n;
    const uint64_t n = i % p.n;
    const uint8_t* x = p.x + m * p.k;
    const uint8_t* w = p.w + n * p.k;
    float sum = 0.0F;
    for (uint32_t b = 0; b < blocks; ++b) {
      float part = 0.0F;
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t k = b * 128 + j * 32 + lane;
        if (k < p.k) part = fmaf(e4m3_value(x[k]), e4m3_value(w[k]), part);
      }
      sum = fmaf(part, p.x_scale[m * blocks + b] * p.w_scale[n / 128 * blocks + b], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) p.out[m * p.stride + p.column + n] = sum;
  }
}

}  // namespace megartp::device
