// The tile product of q_absorb on the CPU: BF16 activations times an FP8 weight whose rows are the reduction index.
//
// Called by src/ops/q_absorb. One numeric order, whatever the instruction set or the tile: each weight is dequantised
// to bf16(e4m3 * scale); each output column is one fp32 accumulator that adds the products of ascending rows d (a
// product of two BF16 values is exact in fp32 unless it underflows; multiply and add are never fused); the sum is
// rounded to BF16 once. The translation unit is built twice (baseline and x86-64-v3) and chosen at run time; both give
// the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bfloat16.h"
#include "base/float8.h"

namespace megartp::ops {

inline constexpr int64_t kAbsorbMaxRows = 64;      // of q in one tile
inline constexpr int64_t kAbsorbMaxColumns = 128;  // of the weight in one tile: one column of scale blocks

// out[m][n] = bf16(sum over d of q[m][d] * bf16(w[d][n] * scale)), m in [0, m_count), n in [0, n_count), d in [0,
// d_count).
struct AbsorbArgs {
  const bf16* q = nullptr;  // element (first row of the tile, d = 0)
  int64_t ldq = 0;
  const e4m3* w = nullptr;  // element (d = 0, first column of the tile)
  int64_t ldw = 0;
  const float* w_scale = nullptr;  // element (scale row 0, the tile's scale column)
  int64_t ld_w_scale = 0;
  int64_t w_row = 0;    // row of d = 0 within the whole weight; its scale row is w_row / 128
  int64_t m_count = 0;  // <= kAbsorbMaxRows
  int64_t n_count = 0;  // <= kAbsorbMaxColumns
  int64_t d_count = 0;
  bf16* out = nullptr;  // element (first row, first column)
  int64_t ld_out = 0;
};
inline constexpr int64_t kAbsorbScratchBytes = 80 * 1024;  // 64-byte aligned
void absorb_tile(const AbsorbArgs& args, std::byte* scratch);

// The two builds, for tests that compare their bits. The second is there only on machines that can run it.
using AbsorbTileFn = void (*)(const AbsorbArgs& args, std::byte* scratch);
std::span<const AbsorbTileFn> absorb_tile_variants();

}  // namespace megartp::ops
