// What the benchmarks of launch plans measure: lists of plans to make, as data. Needs no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda_mega/mega_plan.h"
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
  // Set: the persistent kernel runs the batch, of `launch` only_ops counts.
  std::optional<MegaPlanOptions> mega = std::nullopt;
  bool is_empty = false;  // mega: no instruction runs, what is timed is the frame
};

// One case a mode and batch, with `base` for all else; with `mega` also one a batch for the persistent kernel, and last
// what its frame costs without an instruction.
std::vector<BenchCase> backend_cases(std::span<const LaunchMode> modes, std::span<const Batch> batches,
                                     const LaunchOptions& base,
                                     const std::optional<MegaPlanOptions>& mega = std::nullopt);
// {linear, DAG} x {full, PDL} of the same kernels.
std::vector<BenchCase> ablation_cases(const Batch& batch, const LaunchOptions& base);
// Ops one after the other: cumulative, then each alone. Ops that the graph does not have are left out.
std::vector<BenchCase> growing_cases(const OpGraph& graph, LaunchMode mode, const Batch& batch,
                                     const LaunchOptions& base);
// The same in the persistent kernel; first what its frame costs without an instruction.
std::vector<BenchCase> mega_growing_cases(const OpGraph& graph, const MegaPlanOptions& mega, const Batch& batch,
                                          const LaunchOptions& base);
// One edge of a launch plan, and the ops that it joins.
struct PdlEdge {
  std::string name;
  std::vector<std::string> ops;
};
// Case 1: from A0 to the kernel of B0 that streams most weights. Case 2: the first edge whose consumer has nothing to
// prefetch, where a programmatic edge can lose. `plan` is a kCmp plan of the whole graph. kUnsupported when it has no
// such edge.
Result<PdlEdge> find_pdl_edge(const OpGraph& graph, const LaunchPlan& plan, int which);
// The two ops alone, all other edges full: PDL off, then entry, prologue, prefetch, for each number of rows.
std::vector<BenchCase> pdl_cases(int which, const PdlEdge& edge, std::span<const int64_t> rows, const Batch& batch);

}  // namespace megartp::bench
