// gemm: out = bf16(x w^T), BF16 operands, a warp for each value.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct GemmParams {
  const uint16_t* x;  // BF16 [M, K]
  const uint16_t* w;  // BF16 [N, K]
  uint16_t* out;      // BF16 [M, N]
  uint32_t m;
  uint32_t n;
  uint32_t k;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) gemm_generic(const __grid_constant__ GemmParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  for (uint64_t i = grid_warp(); i < uint64_t{p.m} * p.n; i += grid_warps()) {
    const uint16_t* x = p.x + i / p.n * p.k;
    const uint16_t* w = p.w + i % p.n * p.k;
    float sum = 0.0F;
    for (uint32_t k = lane_index(); k < p.k; k += 32) sum = fmaf(bf16_value(x[k]), bf16_value(w[k]), sum);
    sum = warp_sum(sum);
    if (lane_index() == 0) p.out[i] = bf16_bits(sum);
  }
}

}  // namespace megartp::device
