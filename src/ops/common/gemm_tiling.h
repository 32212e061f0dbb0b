// How GEMM families cut their work: M tiles, N tiles, K slices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "abi/mega_workers.h"
#include "base/math.h"

namespace megartp::ops {

inline constexpr int64_t kBlockN = 128;
inline constexpr int64_t kBlockK = 128;  // one scale block
// Workers of the persistent kernel; 0 where no GPU is known.
constexpr int64_t gpu_workers(int64_t num_sms) { return num_sms * abi::kMegaCtasPerSm; }
// Weight rows of a tile in its plans, where a warpgroup has 64.
inline constexpr int64_t kGpuBlockN = 64;
constexpr int64_t block_n(int64_t num_sms) { return num_sms == 0 ? kBlockN : kGpuBlockN; }

// Rows of one M tile: 16 up to M = 16 (the decode case), then 32, then 64. Every output's sum has the same order
// whatever this is, so it may change without changing a bit.
constexpr int64_t block_m(int64_t m) { return m <= 16 ? 16 : m <= 32 ? 32 : 64; }

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Piece `i` of [0, extent) cut into blocks of `block`, the last one ragged.
constexpr Range block_range(int64_t extent, int64_t block, int64_t i) {
  return {i * block, std::min(extent, (i + 1) * block)};
}

// Rows of a finalizer's tile: those of an M tile; on a GPU, where a warp has a row at a time, few, while there are
// workers for so many tiles: `least`, what its code works on at a time, or more. `columns`: tiles side by side.
constexpr int64_t finalizer_rows(int64_t m, int64_t columns, int64_t num_workers, int64_t least) {
  if (num_workers == 0) return block_m(m);
  int64_t rows = least;
  while (rows < block_m(m) && ceil_div(m, rows) * columns > num_workers) rows *= 2;
  return rows;
}

// Slice `i` of `splits` of K, in whole 128-wide blocks; the first slices take the remainder. Elements, clamped to k.
constexpr Range split_range(int64_t k, int64_t splits, int64_t i) {
  const int64_t blocks = ceil_div(k, kBlockK);
  const int64_t base = blocks / splits;
  const int64_t extra = blocks % splits;
  const int64_t b = i * base + std::min(i, extra);
  const int64_t e = b + base + (i < extra ? 1 : 0);
  return {b * kBlockK, std::min(k, e * kBlockK)};
}
// A wanted split count, limited to the number of K blocks.
constexpr int64_t clamp_splits(int64_t k, int64_t wanted) {
  return std::max<int64_t>(1, std::min(wanted, ceil_div(k, kBlockK)));
}

// K splits for a GPU of so many SMs (0: none is known, 4): about one tile an SM at M up to a tile, each with two blocks
// at least; finalizers have the loads of so many in flight. `attr`: what the graph asks for, 0 where it leaves it open.
// Launch plans and task graphs must agree: it decides bits.
inline constexpr int64_t kMinSplitBlocks = 2;
inline constexpr int64_t kMaxGpuSplits = 8;
inline constexpr int64_t kPlainSplits = 4;
constexpr int64_t gemm_splits(int64_t attr, int64_t num_sms, int64_t num_n_tiles, int64_t k) {
  if (num_sms == 0) return clamp_splits(k, attr != 0 ? attr : kPlainSplits);
  const int64_t wish = attr != 0 ? attr : std::min(num_sms / num_n_tiles, ceil_div(k, kBlockK) / kMinSplitBlocks);
  return clamp_splits(k, std::clamp<int64_t>(wish, 1, kMaxGpuSplits));
}

}  // namespace megartp::ops
