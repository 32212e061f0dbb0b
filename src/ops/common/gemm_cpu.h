// Tile GEMMs on the CPU, the arithmetic heart of cpu-threads.
//
// One numeric order, whatever the instruction set or the tile: for each output and each 128-wide K block, 8 lanes
// accumulate products k = 8i + lane in ascending i (e4m3 products are exact in fp32, so fused or separate multiply-add
// agree; bf16 products are never fused); lanes are added as ((0+4)+(2+6))+((1+5)+(3+7)); blocks are added to a sum that
// starts at +0, in ascending order. With scales, the two scales are multiplied first: sum += block * (a_scale *
// w_scale), each step rounded to fp32, none fused. The translation unit is built twice (baseline and x86-64-v3) and
// chosen at run time; both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bfloat16.h"
#include "base/float8.h"

namespace megartp::ops {

// out[m][n] (ld_out) = sum over K blocks of a_scale[m][kb] * w_scale[n / 128][kb] * sum over k of a[m][k] w[n][k], for
// m in [0, m_count), n in [n_begin, n_begin + n_count), k in [k_begin, k_end); k_begin is a multiple of 128.
struct Fp8GemmArgs {
  const e4m3* a = nullptr;  // row 0 of the tile
  int64_t lda = 0;
  const float* a_scale = nullptr;  // [m][ceil(K/128)], row 0 of the tile
  int64_t ld_a_scale = 0;
  const e4m3* w = nullptr;  // [N, K], whole weight
  int64_t ldw = 0;
  const float* w_scale = nullptr;  // [ceil(N/128), ceil(K/128)], whole
  int64_t ld_w_scale = 0;
  int64_t m_count = 0;
  int64_t n_begin = 0;
  int64_t n_count = 0;
  int64_t k_begin = 0;
  int64_t k_end = 0;
  float* out = nullptr;  // element (row 0 of the tile, n_begin)
  int64_t ld_out = 0;
};
void fp8_gemm_tile(const Fp8GemmArgs& args, std::span<std::byte> scratch);

// The same order for BF16 operands (no scales). w is [N, K] row-major from its first row of the tile.
struct Bf16GemmArgs {
  const bf16* a = nullptr;
  int64_t lda = 0;
  const bf16* w = nullptr;
  int64_t ldw = 0;
  int64_t m_count = 0;
  int64_t n_count = 0;
  int64_t k_count = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
};
void bf16_gemm_tile(const Bf16GemmArgs& args, std::span<std::byte> scratch);

// Decodes to fp32 (exact).
void decode_e4m3(const e4m3* in, int64_t count, float* out);
void decode_bf16(const bf16* in, int64_t count, float* out);

}  // namespace megartp::ops
