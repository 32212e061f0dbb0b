// q_absorb: q_out[m, h, n] = bf16(sum over d of q_nope[m, h, d] * bf16(W[h, d, n] * scale)), BF16 operands, fp32 sums.
//
// A CTA of four warps has one head and 128 columns (absorb.cuh). The weights go straight from global memory into
// fragments, before the wait.
#pragma once

#include "device/frame.cuh"
#include "ops/q_absorb/device/absorb.cuh"

namespace megartp::device {

struct QAbsorbParams {
  const uint2* q_nope;      // BF16 [M, heads, nope]
  const uint8_t* kv_b;      // E4M3 [heads * (nope + v), kv_lora]
  const float* kv_b_scale;  // F32 [ceil(rows / 128), ceil(kv_lora / 128)]
  uint16_t* q_out;          // BF16 [M, heads, kv_lora + rope]
  uint32_t m;
  uint32_t heads;
  uint32_t nope;  // a multiple of 4
  uint32_t v;
  uint32_t kv_lora;  // a multiple of 16
  uint32_t rope;     // a multiple of 8
};

// Grid: heads x column tiles (columns innermost), M. kSteps * 64 >= nope. A CTA does tokens 16 * (blockIdx.y + i *
// gridDim.y); kHasMore: that may be more than 16.
template <int kSteps, bool kHasMore, int kWait>
__global__ void __maxnreg__(kHasMore ? 232 : 200) q_absorb(const __grid_constant__ QAbsorbParams p) {
  static_assert(kSteps <= kAbsorbMaxSteps);
  __shared__ float half_sums[AbsorbPaddedSums::kFloats];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  const uint32_t n_tiles = ceil_div(p.kv_lora, 128);
  const uint32_t head = blockIdx.x / n_tiles;
  const uint32_t n_begin = blockIdx.x % n_tiles * 128;
  const uint32_t g = lane_index() / 4;
  const uint32_t first_d = threadIdx.x / 32 * kSteps * 16 + lane_index() % 4 * 4;
  const uint64_t first_row = uint64_t{head} * (p.nope + p.v);

  uint4 bytes[kSteps][4];
  float scale[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t d = first_d + step * 16 + i;
      const bool is_there = d < p.nope && n_begin + g * 16 < p.kv_lora;
      bytes[step][i] =
          is_there
              ? load_weight(reinterpret_cast<const uint4*>(p.kv_b + (first_row + d) * p.kv_lora + n_begin + g * 16))
              : uint4{};
      scale[step][i] = is_there ? p.kv_b_scale[(first_row + d) / 128 * n_tiles + n_begin / 128] : 0.0F;
    }
  }
  AbsorbWeights<kSteps> w;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) w.convert(step, bytes[step], scale[step]);
  frame.wait_inputs();
  uint2 low[kSteps];
  uint2 high[kSteps];
  const auto load = [&](uint32_t m_begin) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t d = first_d + step * 16;
      const uint64_t at = (uint64_t{m_begin + g} * p.heads + head) * p.nope + d;
      low[step] = d < p.nope && m_begin + g < p.m ? load_global(p.q_nope + at / 4) : uint2{};
      high[step] = d < p.nope && m_begin + g + 8 < p.m
                       ? load_global(p.q_nope + (at + uint64_t{8} * p.heads * p.nope) / 4)
                       : uint2{};
    }
  };
  if constexpr (kHasMore) load(blockIdx.y * 16);
  for (uint32_t m_begin = blockIdx.y * 16; m_begin < p.m; m_begin += gridDim.y * 16) {
    if constexpr (!kHasMore) load(m_begin);
    const uint32_t token = threadIdx.x / 8;
    const uint32_t c = threadIdx.x % 8;
    // Half of the tiles at a time, for registers and shared memory.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sums[kAbsorbTiles][4] = {};
      w.multiply(kSteps, half * kAbsorbTiles, low, high, sums);
      // The next tokens, on their way while these are added up.
      if (kHasMore && half == 1) load(m_begin + gridDim.y * 16);
      __syncthreads();  // everybody has read what stood there before
      absorb_store_sums<AbsorbPaddedSums>(half_sums, threadIdx.x, sums);
      __syncthreads();
      const uint4 v = absorb_add_quarters<AbsorbPaddedSums>(half_sums, token, c);
      const uint32_t n = c * 16 + half * 8;
      if (m_begin + token < p.m && n_begin + n < p.kv_lora)
        *reinterpret_cast<uint4*>(p.q_out + (uint64_t{m_begin + token} * p.heads + head) * (p.kv_lora + p.rope) +
                                  n_begin + n) = v;
    }
  }
}

}  // namespace megartp::device
