// head_gate for any dims: a warp for each partial.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct HeadGateGenericParams {
  const uint16_t* y;  // BF16 [M, hidden]
  const uint16_t* w;  // BF16 [heads, hidden]
  float* partials;    // F32 [slices, M, heads]
  uint32_t m;
  uint32_t heads;
  uint32_t hidden;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) head_gate_generic(const __grid_constant__ HeadGateGenericParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint64_t slice_size = uint64_t{p.m} * p.heads;
  for (uint64_t i = grid_warp(); i < slice_size * ceil_div(p.hidden, 128); i += grid_warps()) {
    const uint64_t first = i / slice_size * 128;
    const uint16_t* y = p.y + i % slice_size / p.heads * p.hidden;
    const uint16_t* w = p.w + i % p.heads * p.hidden;
    float sum = 0.0F;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint64_t k = first + j * 32 + lane_index();
      if (k < p.hidden) sum = fmaf(bf16_value(y[k]), bf16_value(w[k]), sum);
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) p.partials[i] = sum;
  }
}

}  // namespace megartp::device
