// BF16 product of 16 tokens with an FP8 weight [d, n] of 128 columns: warp w of four has the w-th quarter of d.
//
// The assignment of d to the K slots of a step and of n to the columns of a tile is free as long as both operands
// agree: a lane (g = lane / 4, q = lane % 4) holds 16 bytes of 4 rows a step: rows d = 16 step + 4 q + i, columns n =
// 16 g + j, and uses byte j of them in tile j. The four quarters' sums are added in ascending order.
//
// The 16 tiles are done in two halves, one after the other: column c of tile 8 half + j is n =
// 16 c + 8 half + j.
#pragma once

#include "device/mma.cuh"
#include "device/numeric.cuh"
#include "ops/q_absorb/device/q_absorb_layout.h"

namespace megartp::device {

inline constexpr int kAbsorbTiles = 8;  // of a half

__device__ inline uint32_t absorb_word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Weights of a warp as BF16 fragments: kSteps steps of 16 d, both halves.
template <int kSteps>
struct AbsorbWeights {
  static constexpr int kTiles = 2 * kAbsorbTiles;
  uint32_t b[kSteps][kTiles][2];

  // bytes[i]: kTiles columns of row 16 step + 4 q + i, to be scaled by scale[i].
  __device__ void convert(int step, const uint4 (&bytes)[4], const float (&scale)[4]) {
    static_assert(sizeof(uint4) == kTiles);
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      float2 w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = unpack_e4m3(absorb_word(bytes[i], j / 4) >> (j % 4 * 8) & 0xffffU);
        w[i].x *= scale[i];
        w[i].y *= scale[i];
      }
      b[step][j][0] = pack_bf16(w[0].x, w[1].x);
      b[step][j][1] = pack_bf16(w[2].x, w[3].x);
      b[step][j + 1][0] = pack_bf16(w[0].y, w[1].y);
      b[step][j + 1][1] = pack_bf16(w[2].y, w[3].y);
    }
  }

  // Sums of this warp's quarter for tiles first_tile .. + 7, over the first `steps` steps. low/high: this lane's four d
  // of every step, of tokens g and g + 8.
  __device__ void multiply(uint32_t steps, int first_tile, const uint2 (&low)[kSteps], const uint2 (&high)[kSteps],
                           float (&sums)[kAbsorbTiles][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step >= static_cast<int>(steps)) break;
#pragma unroll
      for (int j = 0; j < kAbsorbTiles; ++j)
        mma_bf16_16x8(sums[j], low[step].x, high[step].x, low[step].y, high[step].y, b[step][first_tile + j][0],
                      b[step][first_tile + j][1]);
    }
  }
};

// Where the sum of column `c` of tile `j` stands among those of a half, free of bank conflicts: by a gap behind each
// row, which costs no registers, or by tiles that change places with the token, which costs no gaps.
struct AbsorbPaddedSums {
  static constexpr uint32_t kRow = kAbsorbTiles * 8 + 8;
  static constexpr uint32_t kFloats = 4 * 16 * kRow;
  __device__ static uint32_t at(uint32_t quarter, uint32_t token, uint32_t j, uint32_t c) {
    return (quarter * 16 + token) * kRow + j * 8 + c;
  }
};
struct AbsorbDenseSums {
  static constexpr uint32_t kFloats = 4 * 16 * kAbsorbTiles * 8;
  __device__ static uint32_t at(uint32_t quarter, uint32_t token, uint32_t j, uint32_t c) {
    return ((quarter * 16 + token) * kAbsorbTiles + (j ^ (token % 8))) * 8 + c;
  }
};

// half_sums: shared memory of Sums::kFloats. thread: its index.
template <class Sums>
__device__ inline void absorb_store_sums(float* half_sums, uint32_t thread, const float (&sums)[kAbsorbTiles][4]) {
  const uint32_t quarter = thread / 32;
  const uint32_t g = thread % 32 / 4;
  const uint32_t c = thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < kAbsorbTiles; ++j) {
    *reinterpret_cast<float2*>(half_sums + Sums::at(quarter, g, j, c)) = float2{sums[j][0], sums[j][1]};
    *reinterpret_cast<float2*>(half_sums + Sums::at(quarter, g + 8, j, c)) = float2{sums[j][2], sums[j][3]};
  }
}
// Column c of all tiles of the half, added over the quarters: eight neighbouring n, as BF16.
template <class Sums>
__device__ inline uint4 absorb_add_quarters(const float* half_sums, uint32_t token, uint32_t c) {
  uint32_t out[4];
#pragma unroll
  for (int j = 0; j < kAbsorbTiles; j += 2) {
    float x[2];
#pragma unroll
    for (int k = 0; k < 2; ++k)
      x[k] = half_sums[Sums::at(0, token, j + k, c)] + half_sums[Sums::at(1, token, j + k, c)] +
             half_sums[Sums::at(2, token, j + k, c)] + half_sums[Sums::at(3, token, j + k, c)];
    out[j / 2] = pack_bf16(x[0], x[1]);
  }
  return uint4{out[0], out[1], out[2], out[3]};
}

}  // namespace megartp::device
