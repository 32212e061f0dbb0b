#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace megartp::bench {

double quantile(const std::vector<double>& sorted, double q) {
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

Summary summarize(std::vector<double> sample) {
  Summary s;
  if (sample.empty()) return s;
  std::ranges::sort(sample);
  s.n = sample.size();
  s.median = quantile(sample, 0.5);
  s.p5 = quantile(sample, 0.05);
  s.p95 = quantile(sample, 0.95);
  s.min = sample.front();
  s.max = sample.back();
  return s;
}

double gb_per_s(double num_bytes, double us) { return us > 0 ? num_bytes / us / 1e3 : 0; }

}  // namespace megartp::bench
