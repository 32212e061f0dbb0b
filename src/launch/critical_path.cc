// Estimated times and priorities.
#include <algorithm>
#include <cmath>

#include "launch/launch_passes.h"

namespace megartp::launching {
namespace {

// Only ratios matter: larger bytes per microsecond make all kernels alike, a larger fixed cost favours long chains.
// Measured on one H200: 4.35 TB/s when streaming 640 MB, 0.6 us for each kernel of a serial graph of empty kernels
// beyond the first; a kernel that waits and reduces takes about 2 us at M = 16.
constexpr double kBytesPerUs = 4.35e6;
constexpr double kFixedUs = 2.0;

}  // namespace

void estimate_costs(LaunchPlan& plan) {
  for (LaunchKernel& k : plan.kernels)
    k.estimated_us = kFixedUs + static_cast<double>(k.kernel.weight_bytes + k.kernel.other_bytes) / kBytesPerUs;
}

void set_priorities(LaunchPlan& plan) {
  const size_t n = plan.kernels.size();
  std::vector<double> before(n, 0), after(n, 0);  // the longest path to the kernel's start, and from its end
  for (const LaunchEdge& e : plan.edges)          // sorted by `from`, so the start of `from` is final
    before[e.to] = std::max(before[e.to], before[e.from] + plan.kernels[e.from].estimated_us);
  for (size_t i = plan.edges.size(); i-- > 0;) {
    const LaunchEdge& e = plan.edges[i];
    after[e.from] = std::max(after[e.from], after[e.to] + plan.kernels[e.to].estimated_us);
  }
  double longest = 0, most_slack = 0;
  const auto through = [&](size_t k) { return before[k] + plan.kernels[k].estimated_us + after[k]; };
  for (size_t k = 0; k < n; ++k) longest = std::max(longest, through(k));
  for (size_t k = 0; k < n; ++k) most_slack = std::max(most_slack, longest - through(k));
  for (size_t k = 0; k < n; ++k) {
    const double slack = most_slack > 1e-9 ? (longest - through(k)) / most_slack : 1;
    plan.kernels[k].priority = static_cast<int32_t>(std::lround(kUrgentPriority * (1 - slack)));
  }
}

}  // namespace megartp::launching
