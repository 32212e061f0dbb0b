// add: out = bf16(a + b), a thread for each value.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct AddParams {
  const uint16_t* a;  // BF16 [M, N]
  const uint16_t* b;
  uint16_t* out;
  uint32_t m;
  uint32_t n;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) add_generic(const __grid_constant__ AddParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  for (uint64_t i = grid_thread(); i < uint64_t{p.m} * p.n; i += grid_threads())
    p.out[i] = bf16_bits(bf16_value(p.a[i]) + bf16_value(p.b[i]));
}

}  // namespace megartp::device
