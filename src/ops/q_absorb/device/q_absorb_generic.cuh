// q_absorb for any dims: a thread for each value, d ascending.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct QAbsorbGenericParams {
  const uint16_t* q_nope;   // BF16 [M, heads, nope]
  const uint8_t* kv_b;      // E4M3 [heads * (nope + v), kv_lora]
  const float* kv_b_scale;  // F32 [ceil(rows / 128), ceil(kv_lora / 128)]
  uint16_t* q_out;          // BF16 [M, heads, kv_lora + rope]
  uint32_t m;
  uint32_t heads;
  uint32_t nope;
  uint32_t v;
  uint32_t kv_lora;
  uint32_t rope;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) q_absorb_generic(const __grid_constant__ QAbsorbGenericParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint32_t scale_columns = ceil_div(p.kv_lora, 128);
  for (uint64_t i = grid_thread(); i < uint64_t{p.m} * p.heads * p.kv_lora; i += grid_threads()) {
    const uint64_t row = i / p.kv_lora;  // of [M, heads]
    const uint64_t n = i % p.kv_lora;
    const uint64_t first = row % p.heads * (p.nope + p.v);
    float sum = 0.0F;
    for (uint32_t d = 0; d < p.nope; ++d) {
      const float scale = p.kv_b_scale[(first + d) / 128 * scale_columns + n / 128];
      const float w = round_bf16(e4m3_value(p.kv_b[(first + d) * p.kv_lora + n]) * scale);
      sum = fmaf(bf16_value(p.q_nope[row * p.nope + d]), w, sum);
    }
    p.q_out[row * (p.kv_lora + p.rope) + n] = bf16_bits(sum);
  }
}

}  // namespace megartp::device
