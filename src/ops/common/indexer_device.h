// What the device descriptions of indexer_k and indexer_q share: the row of an index head (device::IndexerRowOptions).
#pragma once

#include <cmath>

#include "ops/common/kernel_builder.h"

namespace megartp::ops {

inline constexpr int64_t kIndexerDim = 128;       // of the fast kernels
inline constexpr int64_t kIndexerRopeUnit = 8;    // of the fast kernels
inline constexpr uint32_t kIndexerMaxSplits = 8;  // a portable cluster

// RoPE, rotation and quantisation of a row. Generic kernels also take the head's size and the rotation's factor.
inline void add_indexer_row(KernelBuilder& b, const Attrs& attrs, int64_t dim, int64_t rope, bool default_pow2_scale,
                            bool is_generic) {
  if (is_generic) b.u32("dim", dim);
  b.u32("rope", rope);
  b.u32("interleave", attrs.get_bool("interleave", true) ? 1 : 0);
  b.u32("hadamard", attrs.get_bool("hadamard", false) ? 1 : 0);
  if (is_generic) b.f32("hadamard_factor", 1.0 / std::sqrt(static_cast<double>(dim)));
  b.u32("pow2_scale", attrs.get_bool("pow2_scale", default_pow2_scale) ? 1 : 0);
}

}  // namespace megartp::ops
