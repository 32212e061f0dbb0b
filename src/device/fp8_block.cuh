// A warp's product of one K block: kRowTiles times 16 weight rows times 8 kTokenTiles tokens over 128 K, all FP8, by
// mma.sync on FP16. Every E4M3 value is exact in FP16 and every product in fp32, and the tensor core adds fp32 with few
// bits lost; its own sums of FP8 products keep some 14 bits, which is not enough for results that are quantised again.
//
// Both operands lie in shared memory with 128-byte swizzle: byte k of row r at r * 128 + (k ^ (r % 8) * 16), tiles
// aligned to 1024 bytes. Which K stands in which slot of a product is free as long as both operands agree: lane q of a
// quad takes 16 bytes k = 32 q + 16 h .. + 15 of a row for half h, four steps of four bytes. So a row of eight lanes
// loads without bank conflicts.
//
// The order of a value's sum is fixed: the eight steps h, s ascending, then one fmaf with the block's scale.
#pragma once

#include "device/mma.cuh"
#include "device/numeric.cuh"

namespace megartp::device {

// 16 bytes as 8 pairs of FP16.
__device__ __forceinline__ void to_pairs(const uint4& bytes, uint32_t (&pairs)[8]) {
  const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    pairs[2 * s] = e4m3_to_f16(words[s] & 0xffffU);
    pairs[2 * s + 1] = e4m3_to_f16(words[s] >> 16);
  }
}
// Those of row `row`.
__device__ __forceinline__ void load_pairs(const uint8_t* tile, uint32_t row, int half, uint32_t (&pairs)[8]) {
  const uint32_t chunk = (2 * (lane_index() % 4) + half) ^ (row % 8);
  to_pairs(load_shared(tile + row * 128 + chunk * 16), pairs);
}

// d += half `half` of the block.
__device__ __forceinline__ void multiply_pairs(float (&d)[4], const uint32_t (&low)[8], const uint32_t (&high)[8],
                                               const uint32_t (&x)[8]) {
#pragma unroll
  for (int s = 0; s < 4; ++s)
    mma_f16_16x8(d, low[2 * s], high[2 * s], low[2 * s + 1], high[2 * s + 1], x[2 * s], x[2 * s + 1]);
}
// The scales of this lane's two tokens of token tile j, as fragments of products have them.
__device__ __forceinline__ float2 block_scale(const float* x_scale, int j, float w_scale) {
  const float* scales = x_scale + 8 * j + 2 * (lane_index() % 4);
  return {scales[0] * w_scale, scales[1] * w_scale};
}
__device__ __forceinline__ void promote(float* sum, const float* d, const float2& scale) {
  sum[0] = fmaf(d[0], scale.x, sum[0]);
  sum[1] = fmaf(d[1], scale.y, sum[1]);
  sum[2] = fmaf(d[2], scale.x, sum[2]);
  sum[3] = fmaf(d[3], scale.y, sum[3]);
}

__device__ __forceinline__ uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
// A warp's 16 weight rows of a block in registers: as they lie in shared memory, or as FP16, which takes twice as many
// registers and no time when x is there. This lane's 16 bytes of rows g and g + 8, half 0, then half 1.
template <bool kAreHalves>
struct BlockWeights;
template <>
struct BlockWeights<false> {
  uint4 rows[4];
  __device__ __forceinline__ void set(int row, const uint4& bytes) { rows[row] = bytes; }
  // K pair `p` (of 8) of half h, row g or g + 8.
  __device__ __forceinline__ uint32_t pair(int h, int r, int p) const {
    return e4m3_to_f16(word(rows[2 * h + r], p / 2) >> (p % 2 * 16) & 0xffffU);
  }
};
template <>
struct BlockWeights<true> {
  uint32_t pairs[4][8];
  __device__ __forceinline__ void set(int row, const uint4& bytes) { to_pairs(bytes, pairs[row]); }
  __device__ __forceinline__ uint32_t pair(int h, int r, int p) const { return pairs[2 * h + r][p]; }
};
// w: the warp's first row.
template <bool kAreHalves>
__device__ __forceinline__ void load_block(BlockWeights<kAreHalves>& to, const uint8_t* w) {
  const uint32_t g = lane_index() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      to.set(2 * h + r, load_shared(w + (g + 8 * r) * 128 + ((2 * (lane_index() % 4) + h) ^ (g % 8)) * 16));
}

// d[b] += block b of one row tile, of kBlocks blocks whose products are independent of each other. Weights from
// registers; x of block b begins b * x_stride bytes behind x.
template <int kBlocks, int kTokenTiles, bool kAreHalves>
__device__ __forceinline__ void multiply_blocks(const BlockWeights<kAreHalves>* w, const uint8_t* x, uint32_t x_stride,
                                                float (&d)[kBlocks][kTokenTiles][4]) {
  const uint32_t g = lane_index() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint4 xs[kBlocks][kTokenTiles];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j)
        xs[b][j] = load_shared(x + b * x_stride + (8 * j + g) * 128 + ((2 * (lane_index() % 4) + h) ^ g) * 16);
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint32_t a[4] = {w[b].pair(h, 0, 2 * s), w[b].pair(h, 1, 2 * s), w[b].pair(h, 0, 2 * s + 1),
                               w[b].pair(h, 1, 2 * s + 1)};
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          const uint32_t xw = word(xs[b][j], s);
          mma_f16_16x8(d[b][j], a[0], a[1], a[2], a[3], e4m3_to_f16(xw & 0xffffU), e4m3_to_f16(xw >> 16));
        }
      }
  }
}

// sums += (w * x) * (x_scale * w_scale). Row tile i begins i * w_stride bytes behind w. x_scale: of the tokens, in
// shared memory. Row tile i's sums stand at sums + i * kSumStride. A lane with g = lane / 4, q = lane % 4 has of row
// tile i
//   sums[4 j + 0, 1] = [row g    ][token 8 j + 2 q + 0, 1]
//   sums[4 j + 2, 3] = [row g + 8][token 8 j + 2 q + 0, 1]
template <int kRowTiles, int kTokenTiles, int kSumStride = 4 * kTokenTiles>
__device__ __forceinline__ void multiply_block(const uint8_t* w, uint32_t w_stride, const uint8_t* x,
                                               const float* x_scale, float w_scale, float* sums) {
  const uint32_t g = lane_index() / 4;
  float d[kRowTiles][kTokenTiles][4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint32_t low[kRowTiles][8];
    uint32_t high[kRowTiles][8];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      load_pairs(w + i * w_stride, g, h, low[i]);
      load_pairs(w + i * w_stride, g + 8, h, high[i]);
    }
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
      uint32_t xs[8];
      load_pairs(x, 8 * j + g, h, xs);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) multiply_pairs(d[i][j], low[i], high[i], xs);
    }
  }
#pragma unroll
  for (int j = 0; j < kTokenTiles; ++j) {
    const float2 scale = block_scale(x_scale, j, w_scale);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) promote(sums + i * kSumStride + 4 * j, d[i][j], scale);
  }
}

}  // namespace megartp::device
