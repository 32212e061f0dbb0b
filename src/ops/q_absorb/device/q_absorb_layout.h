// Sizes that the kernels and their host sides share.
#pragma once

#include <cstdint>

namespace megartp::device {

inline constexpr int kAbsorbStepDepth = 64;  // d that the four quarters take in a step
inline constexpr int kAbsorbMaxSteps = 3;    // more steps spill where a warp has all tiles

// In the persistent kernel: pages of a tile, of weights and of sums; rows of a box of its weights.
inline constexpr uint32_t kAbsorbWeightPages = 2;
inline constexpr uint32_t kAbsorbPages = kAbsorbWeightPages + 2;
inline constexpr uint32_t kAbsorbBoxRows = 64;

}  // namespace megartp::device
