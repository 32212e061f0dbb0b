// main_q's epilogue for any dims: a thread for each pair of columns of z, which fp8_gemm_generic left.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct MainQGenericParams {
  const float* z;  // F32 [M, heads * (nope + rope)]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  uint16_t* q_nope;      // BF16 [M, heads, nope]
  uint16_t* q_out;       // BF16 [M, heads, kv_lora + rope]
  uint32_t m;
  uint32_t heads;
  uint32_t nope;  // even
  uint32_t rope;  // even
  uint32_t kv_lora;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) main_q_generic(const __grid_constant__ MainQGenericParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint32_t pairs = (p.nope + p.rope) / 2;
  for (uint64_t i = grid_thread(); i < uint64_t{p.m} * p.heads * pairs; i += grid_threads()) {
    const uint64_t row = i / pairs;  // of [M, heads]
    const uint32_t column = static_cast<uint32_t>(i % pairs) * 2;
    const float a = round_bf16(p.z[2 * i]);
    const float b = round_bf16(p.z[2 * i + 1]);
    if (column < p.nope) {
      uint16_t* to = p.q_nope + row * p.nope + column;
      to[0] = bf16_bits(a);
      to[1] = bf16_bits(b);
      continue;
    }
    const uint32_t r = column - p.nope;
    const float* table = p.cos_sin + uint64_t(p.positions[row / p.heads]) * p.rope;
    const float c = table[r / 2];
    const float s = table[p.rope / 2 + r / 2];
    uint16_t* to = p.q_out + row * (p.kv_lora + p.rope) + p.kv_lora + r;
    to[0] = bf16_bits(a * c - b * s);
    to[1] = bf16_bits(a * s + b * c);
  }
}

}  // namespace megartp::device
