// indexer_q's finalizer for any dims: a CTA for each head of each row of z, which fp8_gemm_generic left.
#pragma once

#include "ops/common/device/indexer_generic.cuh"

namespace megartp::device {

struct IndexerQGenericParams {
  const float* z;              // F32 [M, heads * dim]
  const float* gate_partials;  // F32 [slices, M, heads]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  uint8_t* q;            // E4M3 [M, heads, dim]
  float* q_scale;        // F32 [M, heads]
  float* weights;        // F32 [M, heads]
  float* gate;           // F32 [M, heads]
  uint32_t m;
  uint32_t heads;
  uint32_t slices;
  uint32_t num_positions;
  float score_scale;
  uint32_t dim;
  uint32_t rope;
  uint32_t interleave;
  uint32_t hadamard;
  float hadamard_factor;
  uint32_t pow2_scale;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads) indexer_q_generic(const __grid_constant__ IndexerQGenericParams p) {
  __shared__ float row[kGenericMaxDim];
  __shared__ float slots[kGenericWarps];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const IndexerGenericOptions options{p.dim, p.rope, p.interleave, p.hadamard, p.hadamard_factor, p.pow2_scale};
  for (uint64_t i = blockIdx.x; i < uint64_t{p.m} * p.heads; i += gridDim.x) {
    const int32_t position = p.positions[i / p.heads];
    // As on the CPU: a row whose position is out of range is left out.
    if (position < 0 || position >= static_cast<int32_t>(p.num_positions)) continue;
    for (uint32_t d = threadIdx.x; d < p.dim; d += kGenericThreads) row[d] = round_bf16(p.z[i * p.dim + d]);
    __syncthreads();
    const float scale =
        indexer_row_generic(row, slots, p.cos_sin + uint64_t(position) * p.rope, options, p.q + i * p.dim);
    if (threadIdx.x == 0) {
      float gate = 0.0F;
      for (uint32_t s = 0; s < p.slices; ++s) gate += p.gate_partials[uint64_t{s} * p.m * p.heads + i];
      p.q_scale[i] = scale;
      p.gate[i] = gate;
      p.weights[i] = gate * scale * p.score_scale;
    }
    __syncthreads();
  }
}

}  // namespace megartp::device
