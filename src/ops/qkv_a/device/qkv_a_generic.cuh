// qkv_a's finalizer for any dims: a CTA for each row of z, which fp8_gemm_generic left.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct QkvAGenericParams {
  const float* z;           // F32 [M, n_q + kv_lora + rope]
  const uint16_t* q_norm;   // BF16 [n_q]
  const uint16_t* kv_norm;  // BF16 [kv_lora]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  const int32_t* slot_mapping;
  uint8_t* cache;  // records, unaligned
  uint8_t* q;      // E4M3 [M, n_q]
  float* q_scale;  // F32 [M, ceil(n_q / 128)]
  uint16_t* kv;    // BF16 [M, kv_lora + rope]
  uint32_t m;
  uint32_t n_q;
  uint32_t kv_lora;
  uint32_t rope;  // even
  float eps;
  uint32_t pow2_scale;
  uint32_t mla_pow2_scale;
};

// Sum of the squares of a row rounded to BF16, in all threads.
__device__ inline float rounded_norm_factor(const float* z, uint32_t n, float eps, float* slots) {
  float sum = 0.0F;
  for (uint32_t i = threadIdx.x; i < n; i += kGenericThreads) {
    const float v = round_bf16(z[i]);
    sum += v * v;
  }
  const float factor = norm_factor(cta_sum<kGenericThreads>(sum, slots), static_cast<float>(n), eps);
  __syncthreads();
  return factor;
}

__device__ inline void store_bytes(uint8_t* to, uint32_t value, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(value >> 8 * i);
}

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) qkv_a_generic(const __grid_constant__ QkvAGenericParams p) {
  __shared__ float slots[kGenericWarps];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint32_t n_kv = p.kv_lora + p.rope;
  const uint32_t q_groups = ceil_div(p.n_q, 128);
  const uint32_t kv_groups = ceil_div(p.kv_lora, 128);
  const uint32_t warp = threadIdx.x / 32;
  for (uint64_t row = blockIdx.x; row < p.m; row += gridDim.x) {
    const float* z = p.z + row * (p.n_q + n_kv);
    const float q_factor = rounded_norm_factor(z, p.n_q, p.eps, slots);
    for (uint32_t g = warp; g < q_groups; g += kGenericWarps) {
      const uint32_t at = g * 128;
      const float scale = quantize_group(
          min(128U, p.n_q - at), p.pow2_scale != 0, p.q + row * p.n_q + at,
          [&](uint32_t i) { return round_bf16(round_bf16(z[at + i]) * q_factor * bf16_value(p.q_norm[at + i])); });
      if (lane_index() == 0) p.q_scale[row * q_groups + g] = scale;
    }
    const float* latent = z + p.n_q;
    const float factor = rounded_norm_factor(latent, p.kv_lora, p.eps, slots);
    uint16_t* kv = p.kv + row * n_kv;
    uint8_t* record = p.cache + uint64_t(p.slot_mapping[row]) * (p.kv_lora + 4 * kv_groups + 2 * p.rope);
    for (uint32_t g = warp; g < kv_groups; g += kGenericWarps) {
      const uint32_t at = g * 128;
      const float scale =
          quantize_group(min(128U, p.kv_lora - at), p.mla_pow2_scale != 0, record + at, [&](uint32_t i) {
            const uint16_t v = bf16_bits(round_bf16(latent[at + i]) * factor * bf16_value(p.kv_norm[at + i]));
            kv[at + i] = v;
            return bf16_value(v);
          });
      if (lane_index() == 0) store_bytes(record + p.kv_lora + 4 * g, __float_as_uint(scale), 4);
    }
    const float* key = latent + p.kv_lora;
    const float* table = p.cos_sin + uint64_t(p.positions[row]) * p.rope;
    for (uint32_t i = threadIdx.x; i < p.rope / 2; i += kGenericThreads) {
      const float a = round_bf16(key[2 * i]);
      const float b = round_bf16(key[2 * i + 1]);
      const float c = table[i];
      const float s = table[p.rope / 2 + i];
      const uint32_t pair = pack_bf16(a * c - b * s, a * s + b * c);
      kv[p.kv_lora + 2 * i] = static_cast<uint16_t>(pair);
      kv[p.kv_lora + 2 * i + 1] = static_cast<uint16_t>(pair >> 16);
      store_bytes(record + p.kv_lora + 4 * kv_groups + 4 * i, pair, 4);
    }
  }
}

}  // namespace megartp::device
