// add_rmsnorm_quant for any dims: a CTA for each row; the sums stay in `residual`, where the second pass finds them.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct RmsnormQuantGenericParams {
  const uint16_t* x;            // BF16 [M, cols]
  const uint16_t* residual_in;  // BF16 [M, cols]
  const uint16_t* w;            // BF16 [cols]
  uint16_t* residual;           // BF16 [M, cols]
  uint16_t* y;                  // BF16 [M, cols]
  uint8_t* q;                   // E4M3 [M, cols]
  float* scale;                 // F32 [M, ceil(cols / 128)]
  uint32_t m;
  uint32_t cols;
  float eps;
  uint32_t pow2_scale;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads)
    rmsnorm_quant_generic(const __grid_constant__ RmsnormQuantGenericParams p) {
  __shared__ float slots[kGenericWarps];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint32_t groups = ceil_div(p.cols, 128);
  for (uint64_t row = blockIdx.x; row < p.m; row += gridDim.x) {
    const uint64_t first = row * p.cols;
    float sum = 0.0F;
    for (uint32_t i = threadIdx.x; i < p.cols; i += kGenericThreads) {
      const uint16_t r = bf16_bits(bf16_value(p.x[first + i]) + bf16_value(p.residual_in[first + i]));
      p.residual[first + i] = r;
      sum += bf16_value(r) * bf16_value(r);
    }
    // Its barrier also shows every thread the others' residuals.
    const float factor = norm_factor(cta_sum<kGenericThreads>(sum, slots), static_cast<float>(p.cols), p.eps);
    for (uint32_t g = threadIdx.x / 32; g < groups; g += kGenericWarps) {
      const uint64_t at = first + g * 128;
      const float scale = quantize_group(min(128U, p.cols - g * 128), p.pow2_scale != 0, p.q + at, [&](uint32_t i) {
        const uint16_t y = bf16_bits(bf16_value(p.residual[at + i]) * factor * bf16_value(p.w[g * 128 + i]));
        p.y[at + i] = y;
        return bf16_value(y);
      });
      if (lane_index() == 0) p.scale[row * groups + g] = scale;
    }
    __syncthreads();
  }
}

}  // namespace megartp::device
