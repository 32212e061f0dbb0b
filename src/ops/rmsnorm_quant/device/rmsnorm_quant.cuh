// add_rmsnorm_quant: one CTA a row. residual = bf16(x + residual_in); y = bf16(residual * factor * w); q, scale = FP8
// groups of 128.
//
// The row stays in registers: a thread holds kVectors pieces of 8 values, kThreads pieces apart, so that 16 neighbours
// hold one group.
#pragma once

#include "device/frame.cuh"
#include "ops/common/device/row_finalize.cuh"

namespace megartp::device {

struct RmsnormQuantParams {
  const uint4* x;            // BF16 [M, cols]
  const uint4* residual_in;  // BF16 [M, cols]
  const uint4* w;            // BF16 [cols]
  uint4* residual;           // BF16 [M, cols]
  uint4* y;                  // BF16 [M, cols]
  uint2* q;                  // E4M3 [M, cols]
  float* scale;              // F32 [M, ceil(cols / 128)]
  uint32_t cols;             // a multiple of 8
  float eps;
  uint32_t pow2_scale;
};

// Eight values of a row, from column 8 * at.
struct RmsnormPiece {
  float r[8];

  // Stores the residual; the sum of its squares.
  __device__ float add(const uint4& x, const uint4& residual_in, uint4* residual) {
    const uint32_t a[4] = {x.x, x.y, x.z, x.w};
    const uint32_t b[4] = {residual_in.x, residual_in.y, residual_in.z, residual_in.w};
    uint32_t out[4];
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      out[k] = pack_bf16(bf16_low(a[k]) + bf16_low(b[k]), bf16_high(a[k]) + bf16_high(b[k]));
      r[2 * k] = bf16_low(out[k]);
      r[2 * k + 1] = bf16_high(out[k]);
      sum += r[2 * k] * r[2 * k];
      sum += r[2 * k + 1] * r[2 * k + 1];
    }
    if (residual != nullptr) *residual = uint4{out[0], out[1], out[2], out[3]};
    return sum;
  }
  // The residual, which is BF16.
  __device__ uint4 packed() const {
    return uint4{pack_bf16(r[0], r[1]), pack_bf16(r[2], r[3]), pack_bf16(r[4], r[5]), pack_bf16(r[6], r[7])};
  }
  __device__ void unpack(const uint4& v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      r[2 * k] = bf16_low(words[k]);
      r[2 * k + 1] = bf16_high(words[k]);
    }
  }
  // By 16 lanes together. Stores y, codes and, in the first lane of a group, its scale.
  __device__ void finish(const RmsnormQuantParams& p, uint64_t row, uint32_t at, const uint4& gain, float factor,
                         bool is_there) const {
    const uint32_t vectors = p.cols / 8;
    const uint32_t g[4] = {gain.x, gain.y, gain.z, gain.w};
    uint32_t out[4];
    float v[8];
    float amax = 0.0F;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      out[k] = pack_bf16(r[2 * k] * factor * bf16_low(g[k]), r[2 * k + 1] * factor * bf16_high(g[k]));
      v[2 * k] = bf16_low(out[k]);
      v[2 * k + 1] = bf16_high(out[k]);
      amax = fmaxf(amax, fmaxf(fabsf(v[2 * k]), fabsf(v[2 * k + 1])));
    }
    const float scale = group_scale(group_max<16>(amax), p.pow2_scale != 0);
    uint32_t codes[2];
    quantize(v, scale, codes);
    if (is_there) {
      p.y[row * vectors + at] = uint4{out[0], out[1], out[2], out[3]};
      p.q[row * vectors + at] = uint2{codes[0], codes[1]};
      if (at % 16 == 0) p.scale[row * ceil_div(p.cols, 128) + at / 16] = scale;
    }
  }
};

template <int kThreads, int kVectors, int kWait>
__global__ void __launch_bounds__(kThreads) rmsnorm_quant(const __grid_constant__ RmsnormQuantParams p) {
  __shared__ float slots[kThreads / 32];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  const uint32_t vectors = p.cols / 8;
  const uint64_t row = blockIdx.x;
  uint4 w[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = i * kThreads + threadIdx.x;
    w[i] = at < vectors ? load_weight(p.w + at) : uint4{};
  }
  frame.wait_inputs();
  uint4 x[kVectors];
  uint4 add[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = i * kThreads + threadIdx.x;
    x[i] = at < vectors ? load_global(p.x + row * vectors + at) : uint4{};
    add[i] = at < vectors ? load_global(p.residual_in + row * vectors + at) : uint4{};
  }
  RmsnormPiece pieces[kVectors];
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = i * kThreads + threadIdx.x;
    sum += pieces[i].add(x[i], add[i], at < vectors ? p.residual + row * vectors + at : nullptr);
  }
  const float factor = norm_factor(cta_sum<kThreads>(sum, slots), static_cast<float>(p.cols), p.eps);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = i * kThreads + threadIdx.x;
    pieces[i].finish(p, row, at, w[i], factor, at < vectors);
  }
}

}  // namespace megartp::device
