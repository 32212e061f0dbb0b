// BF16 product of 16 tokens with an FP8 weight [d, n] of 128 columns, by 4 warps: warp w has the w-th quarter of d and
// all columns.
//
// The assignment of d to the K slots of a step and of n to the columns of a tile is free as long as both operands
// agree: a lane (g = lane / 4, q = lane % 4) holds 16 bytes of 4 rows a step: rows d = 16 step + 4 q + i, columns n =
// 16 g + j, and uses byte j of them in tile j. The four warps' sums are added in ascending order.
#pragma once

#include "device/mma.cuh"
#include "device/numeric.cuh"

namespace megartp::device {

inline constexpr uint32_t kAbsorbStride = 72;  // floats of a token's row: half of the tiles
inline constexpr uint32_t kAbsorbBytes = 4 * 16 * kAbsorbStride * 4;

// Weights of a warp as BF16 fragments. kSteps steps of 16 d a warp.
template <int kSteps>
struct AbsorbWeights {
  uint32_t b[kSteps][16][2];

  // bytes[i]: 16 columns of row 16 step + 4 q + i, to be scaled by scale[i].
  __device__ void convert(int step, const uint4 (&bytes)[4], const float (&scale)[4]) {
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
      float2 w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t words[4] = {bytes[i].x, bytes[i].y, bytes[i].z, bytes[i].w};
        w[i] = unpack_e4m3(words[j / 4] >> (j % 4 * 8) & 0xffffU);
        w[i].x *= scale[i];
        w[i].y *= scale[i];
      }
      b[step][j][0] = pack_bf16(w[0].x, w[1].x);
      b[step][j][1] = pack_bf16(w[2].x, w[3].x);
      b[step][j + 1][0] = pack_bf16(w[0].y, w[1].y);
      b[step][j + 1][1] = pack_bf16(w[2].y, w[3].y);
    }
  }
};

// By a CTA of 128 threads. low/high: this lane's four d of every step, of tokens g and g + 8. `rows` is shared memory
// of kAbsorbBytes. store(token, n, 8 values as four BF16 pairs) for n in steps of 8.
template <int kSteps, class Store>
__device__ inline void absorb_multiply(const AbsorbWeights<kSteps>& w, const uint2 (&low)[kSteps],
                                       const uint2 (&high)[kSteps], float* rows, Store&& store) {
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t g = lane_index() / 4;
  const uint32_t q = lane_index() % 4;
  float(*sums_of)[16][kAbsorbStride] = reinterpret_cast<float(*)[16][kAbsorbStride]>(rows);
  // Half of the tiles at a time, for registers and shared memory. Column c of tile j is n = 16 c + j; it stands at 8 j
  // + c, where stores and loads are free of bank conflicts.
  const uint32_t token = threadIdx.x / 8;
  const uint32_t c = threadIdx.x % 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sums[8][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        mma_bf16_16x8(sums[j], low[step].x, high[step].x, low[step].y, high[step].y, w.b[step][half * 8 + j][0],
                      w.b[step][half * 8 + j][1]);
    __syncthreads();  // everybody has read what stood there before
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      *reinterpret_cast<float2*>(&sums_of[warp][g][j * 8 + q * 2]) = float2{sums[j][0], sums[j][1]};
      *reinterpret_cast<float2*>(&sums_of[warp][g + 8][j * 8 + q * 2]) = float2{sums[j][2], sums[j][3]};
    }
    __syncthreads();
    uint32_t out[4];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      float x[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t at = (j + k) * 8 + c;
        x[k] = sums_of[0][token][at] + sums_of[1][token][at] + sums_of[2][token][at] + sums_of[3][token][at];
      }
      out[j / 2] = pack_bf16(x[0], x[1]);
    }
    store(token, c * 16 + half * 8, uint4{out[0], out[1], out[2], out[3]});
  }
}

}  // namespace megartp::device
