// Weights in the order in which kernels stream them: WeightLayout::kTiles64x128 (ops/device_kernel.h has the picture).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "megartp/error.h"

namespace megartp::cuda {

inline constexpr int64_t kTileRows = 64;
inline constexpr int64_t kTileColumns = 128;

// Of a packed [n, k] weight of one-byte elements: whole pieces of 64 x 128.
size_t packed_weight_bytes(int64_t n, int64_t k);

// checkpoint: n * k bytes, row-major; packed: packed_weight_bytes(n, k) bytes, all of which are written.
// kInvalidArgument when a size is another one. Uses all cores.
Status pack_weight(std::span<const std::byte> checkpoint, int64_t n, int64_t k, std::span<std::byte> packed);

}  // namespace megartp::cuda
