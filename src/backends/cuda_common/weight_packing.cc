#include "backends/cuda_common/weight_packing.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/parallel.h"

namespace megartp::cuda {
namespace {

constexpr int64_t kTileBytes = kTileRows * kTileColumns;
constexpr int64_t kChunk = 16;  // bytes that the swizzle moves as one

int64_t tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

// One row of a piece; `count` bytes of it exist.
void pack_row(const std::byte* from, int64_t count, int64_t row, std::byte* to) {
  for (int64_t column = 0; column < kTileColumns; column += kChunk) {
    std::byte* chunk = to + row * kTileColumns + (column ^ (row % 8) * kChunk);
    const int64_t there = std::clamp<int64_t>(count - column, 0, kChunk);
    if (there > 0) std::memcpy(chunk, from + column, static_cast<size_t>(there));
    std::memset(chunk + there, 0, static_cast<size_t>(kChunk - there));
  }
}

}  // namespace

size_t packed_weight_bytes(int64_t n, int64_t k) {
  return static_cast<size_t>(tiles(n, kTileRows) * tiles(k, kTileColumns) * kTileBytes);
}

Status pack_weight(std::span<const std::byte> checkpoint, int64_t n, int64_t k, std::span<std::byte> packed) {
  if (n <= 0 || k <= 0 || checkpoint.size() != static_cast<size_t>(n * k) || packed.size() != packed_weight_bytes(n, k))
    return make_error(ErrorCode::kInvalidArgument, fmt::format("packing a weight [{}, {}] of {} bytes into {} bytes", n,
                                                               k, checkpoint.size(), packed.size()));
  const int64_t columns = tiles(k, kTileColumns);
  const auto pack_strip = [&](int64_t strip) {  // 64 rows
    for (int64_t tile = 0; tile < columns; ++tile) {
      std::byte* to = packed.data() + (strip * columns + tile) * kTileBytes;
      for (int64_t row = 0; row < kTileRows; ++row) {
        const int64_t n_idx = strip * kTileRows + row;
        const int64_t there = n_idx < n ? std::min(kTileColumns, k - tile * kTileColumns) : 0;
        pack_row(there > 0 ? checkpoint.data() + n_idx * k + tile * kTileColumns : nullptr, there, row, to);
      }
    }
  };
  parallel_for(static_cast<uint64_t>(tiles(n, kTileRows)), 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t strip = begin; strip < end; ++strip) pack_strip(static_cast<int64_t>(strip));
  });
  return {};
}

}  // namespace megartp::cuda
