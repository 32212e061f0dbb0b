// q_absorb: q_out[m, h, n] = bf16(sum over d of q_nope[m, h, d] * bf16(W[h, d, n] * scale)), BF16 operands, fp32 sums.
//
// A CTA has one head and 128 columns; warp w of 4 the w-th quarter of d, all columns. The weights are FP8, rows d, and go straight from
// global memory into fragments, before the wait: the assignment of d to the K slots of a step and of n to the columns of a tile is free
// as long as operands agree, so a lane (g = lane / 4, q = lane % 4) reads 16 bytes of 4 rows a step: rows d = 16 step + 4 q + i, columns
// n = 16 g + j, and uses byte j of them in tile j. The four warps' sums are added in ascending order.
#pragma once

#include "device/frame.cuh"
#include "device/numeric.cuh"

namespace megartp::device {

struct QAbsorbParams {
  const uint2* q_nope;   // BF16 [M, heads, nope]
  const uint8_t* kv_b;   // E4M3 [heads * (nope + v), kv_lora]
  const float* kv_b_scale;  // F32 [ceil(rows / 128), ceil(kv_lora / 128)]
  uint16_t* q_out;       // BF16 [M, heads, kv_lora + rope]
  uint32_t m;
  uint32_t heads;
  uint32_t nope;         // a multiple of 4
  uint32_t v;
  uint32_t kv_lora;      // a multiple of 16
  uint32_t rope;         // a multiple of 8
};

__device__ inline void mma_absorb(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Grid: heads x column tiles (columns innermost), groups of M. kSteps * 64 >= nope. A CTA does tokens 16 * blockIdx.y + i * 16 * gridDim.y.
template <int kSteps, int kWait>
__global__ void __launch_bounds__(128, 3) q_absorb(const __grid_constant__ QAbsorbParams p) {
  constexpr uint32_t kStride = 72;  // floats of a token's row: half of the tiles
  __shared__ float rows[4][16][kStride];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  const uint32_t n_tiles = ceil_div(p.kv_lora, 128);
  const uint32_t head = blockIdx.x / n_tiles;
  const uint32_t n_begin = blockIdx.x % n_tiles * 128;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t g = lane_index() / 4;
  const uint32_t q = lane_index() % 4;
  const uint32_t first_d = warp * kSteps * 16 + q * 4;
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
          is_there ? load_weight(reinterpret_cast<const uint4*>(p.kv_b + (first_row + d) * p.kv_lora + n_begin + g * 16)) : uint4{};
      scale[step][i] = is_there ? p.kv_b_scale[(first_row + d) / 128 * n_tiles + n_begin / 128] : 0.0F;
    }
  }
  uint32_t b[kSteps][16][2];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
      float2 w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t words[4] = {bytes[step][i].x, bytes[step][i].y, bytes[step][i].z, bytes[step][i].w};
        w[i] = unpack_e4m3(words[j / 4] >> (j % 4 * 8) & 0xffffU);
        w[i].x *= scale[step][i];
        w[i].y *= scale[step][i];
      }
      b[step][j][0] = pack_bf16(w[0].x, w[1].x);
      b[step][j][1] = pack_bf16(w[2].x, w[3].x);
      b[step][j + 1][0] = pack_bf16(w[0].y, w[1].y);
      b[step][j + 1][1] = pack_bf16(w[2].y, w[3].y);
    }
  }
  frame.wait_inputs();
  for (uint32_t m_begin = blockIdx.y * 16; m_begin < p.m; m_begin += gridDim.y * 16) {
    uint2 low[kSteps];
    uint2 high[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t d = first_d + step * 16;
      const uint64_t at = (uint64_t{m_begin + g} * p.heads + head) * p.nope + d;
      low[step] = d < p.nope && m_begin + g < p.m ? load_global(p.q_nope + at / 4) : uint2{};
      high[step] = d < p.nope && m_begin + g + 8 < p.m ? load_global(p.q_nope + (at + uint64_t{8} * p.heads * p.nope) / 4) : uint2{};
    }
    // Half of the tiles at a time, for registers and shared memory. Column c of tile j is n = 16 c + j; it stands at 8 j + c, where stores
    // and loads are free of bank conflicts.
    const uint32_t token = threadIdx.x / 8;
    const uint32_t c = threadIdx.x % 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sums[8][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          mma_absorb(sums[j], low[step].x, high[step].x, low[step].y, high[step].y, b[step][half * 8 + j][0], b[step][half * 8 + j][1]);
      if (half != 0) __syncthreads();  // everybody has read the first half
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        *reinterpret_cast<float2*>(&rows[warp][g][j * 8 + q * 2]) = float2{sums[j][0], sums[j][1]};
        *reinterpret_cast<float2*>(&rows[warp][g + 8][j * 8 + q * 2]) = float2{sums[j][2], sums[j][3]};
      }
      __syncthreads();
      if (m_begin + token < p.m && n_begin + c * 16 < p.kv_lora) {
        uint32_t out[4];
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          float x[2];
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const uint32_t at = (j + k) * 8 + c;
            x[k] = rows[0][token][at] + rows[1][token][at] + rows[2][token][at] + rows[3][token][at];
          }
          out[j / 2] = pack_bf16(x[0], x[1]);
        }
        *reinterpret_cast<uint4*>(p.q_out + (uint64_t{m_begin + token} * p.heads + head) * (p.kv_lora + p.rope) + n_begin + c * 16 +
                                  half * 8) = uint4{out[0], out[1], out[2], out[3]};
      }
    }
    if (m_begin + gridDim.y * 16 < p.m) __syncthreads();
  }
}

}  // namespace megartp::device
