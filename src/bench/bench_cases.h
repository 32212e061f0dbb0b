// What the benchmarks of launch plans measure: lists of plans to make, as data. Needs no GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/launch_plan.h"

namespace megartp::bench {

struct Batch {
  int64_t m = 16, kv = 8192, requests = 2;
  friend bool operator==(const Batch&, const Batch&) = default;
};

// How a row of the report relates to the rows before it.
enum class RowKind : uint8_t {
  kPlain,
  kCumulative,  // this row's plan is that of the cumulative row before it and one op more
};

struct BenchCase {
  std::string group;  // rows of one group are compared with each other
  std::string name;
  Batch batch;
  LaunchOptions launch;
  RowKind kind = RowKind::kPlain;
};

// One case a mode and batch, with `base` for all else.
std::vector<BenchCase> backend_cases(std::span<const LaunchMode> modes, std::span<const Batch> batches,
                                     const LaunchOptions& base);
// {linear, DAG} x {full, PDL} of the same kernels.
std::vector<BenchCase> ablation_cases(const Batch& batch, const LaunchOptions& base);
// Ops one after the other: cumulative, then each alone. Ops that the graph does not have are left out.
std::vector<BenchCase> growing_cases(const OpGraph& graph, LaunchMode mode, const Batch& batch,
                                     const LaunchOptions& base);
// Case 1: A0 -> B0's first kernel, PDL off, then entry, prologue, prefetch, for M = 16 ... 256. Case 2: B0's own two
// kernels, of which the second has nothing to prefetch. `edge` is the edge's name: "A0->B0.gemm".
std::vector<BenchCase> pdl_cases(std::string_view group, std::string_view edge, std::vector<std::string> ops,
                                 std::span<const int64_t> rows, const Batch& batch);

}  // namespace megartp::bench
