// rmsnorm: out = bf16(x * factor * w), a CTA for each row.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct RmsnormParams {
  const uint16_t* x;  // BF16 [M, N]
  const uint16_t* w;  // BF16 [N]
  uint16_t* out;      // BF16 [M, N]
  uint32_t m;
  uint32_t n;
  float eps;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) rmsnorm_generic(const __grid_constant__ RmsnormParams p) {
  __shared__ float slots[kGenericWarps];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  for (uint64_t row = blockIdx.x; row < p.m; row += gridDim.x) {
    const uint16_t* x = p.x + row * p.n;
    float sum = 0.0F;
    for (uint32_t i = threadIdx.x; i < p.n; i += kGenericThreads) sum += bf16_value(x[i]) * bf16_value(x[i]);
    const float factor = norm_factor(cta_sum<kGenericThreads>(sum, slots), static_cast<float>(p.n), p.eps);
    for (uint32_t i = threadIdx.x; i < p.n; i += kGenericThreads)
      p.out[row * p.n + i] = bf16_bits(bf16_value(x[i]) * factor * bf16_value(p.w[i]));
    __syncthreads();
  }
}

}  // namespace megartp::device
