// main_q: FP8 GEMM without K splits; a tile's sums go through shared memory, are rounded to BF16 and stored by head:
// the first `nope` columns of a head to q_nope, the others rotated to the end of the head's row of q_out.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"

namespace megartp::device {

struct MainQParams {
  TensorMap x_map;        // E4M3 [M, K]
  TensorMap w_map;        // E4M3 [heads * (nope + rope), K]
  const uint8_t* pieces;  // tiled layout
  const float* w_scale;   // F32 [ceil(N / 128), K blocks]
  const float* x_scale;   // F32 [M, K blocks]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  uint32_t* q_nope;      // BF16 [M, heads, nope], in pairs
  uint32_t* q_out;       // BF16 [M, heads, kv_lora + rope], in pairs
  uint32_t m;
  uint32_t k_blocks;
  uint32_t n;  // even
  uint32_t heads;
  uint32_t nope;     // even
  uint32_t rope;     // even
  uint32_t kv_lora;  // even
};

// Dynamic shared memory: GemmSmem, then the cosines and sines of the tile's tokens, F32 [kTileM, rope].
template <class S>
struct MainQSmem {
  __host__ __device__ static constexpr uint32_t rope_offset(uint32_t k_blocks) { return S::smem_bytes(k_blocks); }
  __host__ __device__ static constexpr uint32_t smem_bytes(uint32_t k_blocks, uint32_t rope) {
    return rope_offset(k_blocks) + 4 * S::kTileM * rope;
  }
};

// Grid: N tiles, M tiles.
template <class S, int kWait>
__global__ void __launch_bounds__(S::kThreads, S::kTileM <= 16 ? 2 : 1) main_q(const __grid_constant__ MainQParams p) {
  extern __shared__ uint8_t dynamic[];
  const GemmSmem<S> smem(dynamic, p.k_blocks);
  const KernelFrame<kWait> frame;
  if (threadIdx.x == 0) smem.init();
  frame.enter();
  __syncthreads();
  frame.after_prologue();

  const GemmTile t = gemm_tile<S>(p.x_map, p.x_scale, p.w_map, p.pieces, p.w_scale, p.k_blocks, p.n,
                                  blockIdx.x * S::kTileN, p.m, blockIdx.y * S::kTileM, 0, p.k_blocks);

  if (is_weight_loader<S>()) {
    load_weights(smem, t);
  } else if (is_activation_loader<S>()) {
    load_activations(smem, t, frame);
  } else {
    const uint32_t head_columns = p.nope + p.rope;
    // Arguments: constant while anything runs. Fetched before the wait, because each takes two trips to the memory.
    float* rope_table = reinterpret_cast<float*>(dynamic + MainQSmem<S>::rope_offset(p.k_blocks));
    const uint32_t first_column = t.n_begin % head_columns;
    const bool has_rope = first_column + S::kTileN > p.nope;
    if (has_rope) {
      // Several at a time: each takes two trips to the memory.
      constexpr uint32_t kAtOnce = S::kTileM <= 16 ? 4 : 8;
      for (uint32_t first = threadIdx.x; first < t.m_count * p.rope; first += kAtOnce * S::kConsumers) {
        float v[kAtOnce];
#pragma unroll
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          const uint32_t i = min(first + k * S::kConsumers, t.m_count * p.rope - 1);
          v[k] = p.cos_sin[uint64_t(p.positions[t.m_begin + i / p.rope]) * p.rope + i % p.rope];
        }
#pragma unroll
        for (uint32_t k = 0; k < kAtOnce; ++k)
          if (first + k * S::kConsumers < t.m_count * p.rope) rope_table[first + k * S::kConsumers] = v[k];
      }
    }
    load_weight_scales(smem, t, threadIdx.x);
    GemmSums<S> sums;
    multiply(smem, t, threadIdx.x, frame, sums);
    // Every stage has been consumed by everyone: the ring's memory is free for the sums.
    constexpr uint32_t kStride = S::kTileN + 4;
    static_assert(kStride * S::kTileM * 4 <= S::kStages * S::kStageBytes);
    float* rows = reinterpret_cast<float*>(smem.ring);
    named_barrier(1, S::kConsumers);
    sums.for_each(threadIdx.x, [&](uint32_t n, uint32_t token, float v) { rows[token * kStride + n] = v; });
    named_barrier(1, S::kConsumers);
    for (uint32_t i = threadIdx.x; i < t.m_count * (S::kTileN / 2); i += S::kConsumers) {
      const uint32_t token = i / (S::kTileN / 2);
      const uint32_t in_tile = i % (S::kTileN / 2) * 2;
      const uint32_t n = t.n_begin + in_tile;
      if (n >= p.n) continue;
      const float2 sums2 = *reinterpret_cast<const float2*>(rows + token * kStride + in_tile);
      const uint32_t pair = pack_bf16(sums2.x, sums2.y);
      const uint32_t head = n / head_columns;
      const uint32_t column = n % head_columns;
      const uint64_t row = uint64_t{t.m_begin + token} * p.heads + head;
      if (column < p.nope) {
        p.q_nope[(row * p.nope + column) / 2] = pair;
      } else {
        const uint32_t r = column - p.nope;
        const float* table = rope_table + token * p.rope;
        const float2 v = rotate(bf16_low(pair), bf16_high(pair), table[r / 2], table[p.rope / 2 + r / 2]);
        p.q_out[(row * (p.kv_lora + p.rope) + p.kv_lora + r) / 2] = pack_bf16(v.x, v.y);
      }
    }
  }
}

}  // namespace megartp::device
