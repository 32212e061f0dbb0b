// %globaltimer, the clock of traces on a GPU: nanoseconds, the same on all SMs, in steps that depend on the GPU (32 ns
// on an H200).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megartp::cuda {

inline constexpr std::string_view kGlobalTimer = "%globaltimer";

// The smallest difference between any two of these times that is not 0: the clock's step, when there are enough of
// them. 1 when all are the same.
inline uint64_t smallest_step_ns(std::vector<uint64_t> times) {
  std::ranges::sort(times);
  uint64_t step = 0;
  for (size_t i = 1; i < times.size(); ++i)
    if (const uint64_t d = times[i] - times[i - 1]; d != 0 && (step == 0 || d < step)) step = d;
  return std::max<uint64_t>(step, 1);
}

}  // namespace megartp::cuda
