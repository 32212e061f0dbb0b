// A row of the indexer's q or k with any number of dims, by a CTA: RoPE on the first dims, optional Hadamard rotation,
// one rounding to BF16, one FP8 group.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

inline constexpr uint32_t kGenericMaxDim = 4096;  // as on the CPU

struct IndexerGenericOptions {
  uint32_t dim;
  uint32_t rope;  // even, at most dim
  uint32_t interleave;
  uint32_t hadamard;  // dim is then a power of two
  float hadamard_factor;
  uint32_t pow2_scale;
};

// `row`: the values in shared memory, complete; all threads have passed a barrier. Returns the scale in all threads.
__device__ inline float indexer_row_generic(float* row, float* slots, const float* cos_sin,
                                            const IndexerGenericOptions& o, uint8_t* codes) {
  const uint32_t half = o.rope / 2;
  for (uint32_t i = threadIdx.x; i < half; i += kGenericThreads) {
    float* a = row + (o.interleave != 0 ? 2 * i : i);
    float* b = row + (o.interleave != 0 ? 2 * i + 1 : i + half);
    const float c = cos_sin[i];
    const float s = cos_sin[half + i];
    const float x = *a * c - *b * s;
    const float y = *a * s + *b * c;
    *a = x;
    *b = y;
  }
  __syncthreads();
  if (o.hadamard != 0) {
    for (uint32_t distance = 1; distance < o.dim; distance *= 2) {
      for (uint32_t i = threadIdx.x; i < o.dim / 2; i += kGenericThreads) {
        const uint32_t at = i / distance * 2 * distance + i % distance;
        const float a = row[at];
        const float b = row[at + distance];
        row[at] = a + b;
        row[at + distance] = a - b;
      }
      __syncthreads();
    }
  }
  const float factor = o.hadamard != 0 ? o.hadamard_factor : 1.0F;
  float amax = 0.0F;
  for (uint32_t i = threadIdx.x; i < o.dim; i += kGenericThreads)
    amax = fmaxf(amax, fabsf(round_bf16(row[i] * factor)));
  const float scale = group_scale(cta_max(amax, slots), o.pow2_scale != 0);
  for (uint32_t i = threadIdx.x; i < o.dim; i += kGenericThreads)
    codes[i] = e4m3_code(__fdiv_rn(round_bf16(row[i] * factor), scale));
  return scale;
}

}  // namespace megartp::device
