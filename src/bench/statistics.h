// Figures of a sample of times.
#pragma once

#include <cstddef>
#include <vector>

namespace megartp::bench {

struct Summary {
  size_t n = 0;
  double median = 0, p5 = 0, p95 = 0, min = 0, max = 0;
  friend bool operator==(const Summary&, const Summary&) = default;
};

// Between the two nearest values of the sorted sample: quantile 0 is the least, 1 the greatest. The sample is not
// empty.
double quantile(const std::vector<double>& sorted, double q);
// All zero for an empty sample.
Summary summarize(std::vector<double> sample);

// GB/s of so many bytes in so many microseconds; 0 when no time passed.
double gb_per_s(double num_bytes, double us);

}  // namespace megartp::bench
