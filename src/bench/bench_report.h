// The figures of a benchmark run, and their text forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_cases.h"
#include "bench/statistics.h"

namespace megartp::bench {

struct BenchRow {
  std::string group, name;
  Batch batch;
  uint32_t num_kernels = 0;
  uint64_t num_bytes = 0;          // that the kernels say they move
  Summary cold;                    // us, weights rotate over copies larger than L2
  std::optional<Summary> same;     // us, the same weights each time
  std::optional<double> added_us;  // cumulative rows: beyond the row before
  double read_us = 0;  // median of one kernel that only reads so many bytes, same protocol; 0 = not measured
  // us on the device, from the first kernel's start to the last one's end, weights rotating; and the cold time of the
  // same samples, which shows how much tracing costs.
  std::optional<Summary> span = {}, traced = {};

  double gb_per_s() const { return bench::gb_per_s(static_cast<double>(num_bytes), cold.median); }
  // How near the plan comes to only reading its bytes: read_us over the median.
  std::optional<double> share_of_read() const;
};

struct BenchReport {
  std::string model, device, driver;
  uint32_t num_copies = 0;
  uint64_t l2_bytes = 0, weight_bytes = 0;  // of one copy
  Summary offset;                           // two event records with nothing between: contained in every figure
  Summary empty;                            // a graph of one empty kernel
  std::string span_note;                    // why there are no spans, when they were asked for
  std::vector<BenchRow> rows;
};

// Fills added_us of the cumulative rows.
void add_differences(const std::vector<BenchCase>& cases, std::vector<BenchRow>& rows);

std::string to_table(const BenchReport& report);
// One line a row, with a header; fields with commas are quoted.
std::string to_csv(const BenchReport& report);
std::string to_json(const BenchReport& report);

}  // namespace megartp::bench
