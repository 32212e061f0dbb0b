// Sizes that the kernel and its launch share.
#pragma once

#include <cstdint>

namespace megartp::device {

inline constexpr int kScoreInlineBlocks = 16;  // token blocks that are parameters
inline constexpr int kScoreStages = 4;         // pages in flight
inline constexpr int kScorePairs = 128;        // (token, head) pairs of a token block
inline constexpr int kScoreThreads = 160;      // a consumer warpgroup, a loader warp
inline constexpr int kScoreTilePages = 10;     // key pages of a tile of the persistent kernel at most

// Dynamic shared memory, to be aligned to 1024: q, stages of a page's keys and scales, barriers and flags, weights.
inline constexpr uint32_t kScoreSmemBytes =
    1024 + kScorePairs * 128 + kScoreStages * (8192 + 256) + 256 + kScorePairs * 4;

}  // namespace megartp::device
