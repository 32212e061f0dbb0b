// indexer_k's finalizer for any dims: a CTA for each row of z, which fp8_gemm_generic left.
#pragma once

#include "ops/common/device/indexer_generic.cuh"

namespace megartp::device {

struct IndexerKGenericParams {
  const float* z;          // F32 [M, dim]
  const uint16_t* norm_w;  // BF16 [dim]
  const uint16_t* norm_b;  // BF16 [dim]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  const int32_t* slot_mapping;
  uint8_t* cache;  // pages of 64 keys of dim bytes, then 64 scales
  uint32_t m;
  uint32_t num_positions;
  uint32_t num_slots;
  float eps;
  uint32_t dim;
  uint32_t rope;
  uint32_t interleave;
  uint32_t hadamard;
  float hadamard_factor;
  uint32_t pow2_scale;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) indexer_k_generic(const __grid_constant__ IndexerKGenericParams p) {
  __shared__ float row[kGenericMaxDim];
  __shared__ float slots[3][kGenericWarps];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const IndexerGenericOptions options{p.dim, p.rope, p.interleave, p.hadamard, p.hadamard_factor, p.pow2_scale};
  for (uint64_t m = blockIdx.x; m < p.m; m += gridDim.x) {
    const int32_t position = p.positions[m];
    const int32_t slot = p.slot_mapping[m];
    // As on the CPU: a row whose position or slot is out of range is dropped.
    if (position < 0 || position >= static_cast<int32_t>(p.num_positions) || slot < 0 ||
        slot >= static_cast<int32_t>(p.num_slots))
      continue;
    float sum = 0.0F;
    for (uint32_t i = threadIdx.x; i < p.dim; i += kGenericThreads) {
      row[i] = round_bf16(p.z[m * p.dim + i]);
      sum += row[i];
    }
    const float n = static_cast<float>(p.dim);
    const float mean = __fdiv_rn(cta_sum<kGenericThreads>(sum, slots[0]), n);
    float squares = 0.0F;
    for (uint32_t i = threadIdx.x; i < p.dim; i += kGenericThreads) squares += (row[i] - mean) * (row[i] - mean);
    const float factor = norm_factor(cta_sum<kGenericThreads>(squares, slots[1]), n, p.eps);
    for (uint32_t i = threadIdx.x; i < p.dim; i += kGenericThreads)
      row[i] = (row[i] - mean) * factor * bf16_value(p.norm_w[i]) + bf16_value(p.norm_b[i]);
    __syncthreads();
    uint8_t* page = p.cache + uint64_t(slot / 64) * 64 * (p.dim + 4);
    const float scale = indexer_row_generic(row, slots[2], p.cos_sin + uint64_t(position) * p.rope, options,
                                            page + uint64_t(slot % 64) * p.dim);
    // Pages have a multiple of 256 bytes and scales behind 64 keys: aligned whatever dim is.
    if (threadIdx.x == 0) *reinterpret_cast<float*>(page + uint64_t{64} * p.dim + slot % 64 * 4) = scale;
    __syncthreads();
  }
}

}  // namespace megartp::device
