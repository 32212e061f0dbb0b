// LaunchPlan: an operator graph as ordinary kernels with edges between them, for a CUDA graph.
//
//   OpGraph --families--> kernels with accesses --def-use--> true edges --mode--> edges with kinds --prover-->
//   LaunchPlan
//
// Called by backends (they add code and addresses), the command-line tool and the benchmarks. Invariant: every plan
// that build_launch_plan returns has passed the launch prover; kernels stand in program order and edges go forward in
// it, at most one a pair. A plan holds no address and can be made on any machine. docs/launch-plans.md describes the
// modes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megartp/error.h"
#include "megartp/op_graph.h"
#include "ops/device_kernel.h"
#include "verify/launch/launch_finding.h"
#include "verify/launch/launch_graph.h"

namespace megartp {

enum class LaunchMode : uint8_t {
  kSerial,  // one kernel after another: a chain of full edges
  kPdl,     // the chain, with programmatic edges wherever the prover allows them
  kDag,     // the true dependencies, full edges
  kCmp,     // the true dependencies, programmatic edges wherever the prover allows them
};
std::string_view to_string(LaunchMode mode);                  // "serial", ...: also the names of the backends
Result<LaunchMode> parse_launch_mode(std::string_view name);  // kInvalidArgument for any other name

// How much of the consumer may overlap with the producer. All but kFull are programmatic edges.
enum class EdgeLevel : uint8_t { kFull, kEnterOnly, kPrologue, kPrefetch };
std::string_view to_string(EdgeLevel level);  // "full", "enter-only", "prologue", "prefetch"
Result<EdgeLevel> parse_edge_level(std::string_view name);
// "A0->B0.gemm=full"
Result<std::pair<std::string, EdgeLevel>> parse_edge_setting(std::string_view text);

struct LaunchKernel {
  DeviceKernel kernel;
  std::string name;  // "B0.gemm", unique in the plan
  OpId op = kInvalidId;
  // CUDA's sense: 0 is the least urgent, kUrgentPriority the most. Backends clamp to what the device has. All 0 in
  // chains.
  int32_t priority = 0;
  // What stands for $WAIT in kernel.entry: the highest level of the programmatic in-edges, which one wait serves.
  // Kernels with full in-edges only have kPrefetch: their wait returns at once.
  DeviceWait wait = DeviceWait::kPrefetch;
  bool has_programmatic_in = false;
  double estimated_us = 0;  // bytes over the estimated rate, and a fixed cost
};
inline constexpr int32_t kUrgentPriority = -5;

// Why one kernel must follow another: what they share, and how.
struct EdgeReason {
  enum class Kind : uint8_t { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };
  Kind kind = Kind::kReadAfterWrite;
  TensorId tensor = kInvalidId;
  friend bool operator==(const EdgeReason&, const EdgeReason&) = default;
};
std::string_view to_string(EdgeReason::Kind kind);  // "RAW", "WAR", "WAW"

struct LaunchEdge {
  uint32_t from = 0, to = 0;                        // kernels
  launch::EdgeKind kind = launch::EdgeKind::kFull;  // kFull or kProgrammatic
  EdgeLevel level = EdgeLevel::kFull;
  bool is_forced = false;  // LaunchOptions::levels names it
  // Moved here from its true consumer, a kernel behind `to`, which then need not join two branches
  // (docs/launch-plans.md).
  bool is_moved = false;
  std::vector<EdgeReason> reasons;  // empty where the chain alone asks for it
  std::string proof;                // the prover's sentence: "programmatic, because ..."
};

struct LaunchWorkspace {
  TensorId tensor = kInvalidId;
  bool zeroed = false;  // set to zero once, before the first run
  // Not empty: a constant, which holds these words in every run and which no kernel writes.
  std::vector<uint32_t> words = {};
};

struct LaunchPlan {
  std::string name;  // of the graph
  LaunchMode mode = LaunchMode::kSerial;
  DeviceTarget target;
  ShapeEnv shapes;
  // With resolved dims: the graph's tensors under their ids, then the workspaces.
  std::vector<ConcreteTensor> tensors;
  uint32_t num_graph_tensors = 0;
  std::vector<LaunchWorkspace> workspaces;
  std::vector<LaunchKernel> kernels;
  std::vector<LaunchEdge> edges;  // sorted by (from, to)
  launch::Graph graph;            // what was proved; nodes and edges in the order of `kernels` and `edges`
  launch::Proof proof;            // of `graph`; no errors, perhaps warnings

  uint64_t num_bytes() const;  // moved by all kernels of one run, as they say
};

using FindDeviceFamily = std::function<const DeviceFamily*(std::string_view kind)>;

struct LaunchOptions {
  LaunchMode mode = LaunchMode::kCmp;
  DeviceTarget target;
  // "A0->B0.gemm": the level of this edge. A programmatic level that the prover refuses is an error, as is an edge that
  // the mode does not have.
  std::map<std::string, EdgeLevel, std::less<>> levels;
  EdgeLevel default_level = EdgeLevel::kPrefetch;  // of the other edges of kPdl and kCmp where the prover allows it
  // Only the kernels of these ops; empty: all. What left-out ops would write then holds whatever memory holds: for
  // timing parts of a graph. kInvalidArgument when the graph has no such op.
  std::vector<std::string> only_ops;
  uint32_t replay_streams = 1;   // replays on one stream follow each other whole; more than one is refused (R9)
  FindDeviceFamily find_family;  // empty: find_device_family
};

// Errors: the graph's own status; kUnsupported naming the op when its family has no device code or refuses the dims;
// kInvalidArgument for levels and ops that do not exist and for forced levels that do not prove; kInternal when what
// the families declare does not prove even with full edges.
Result<LaunchPlan> build_launch_plan(const OpGraph& graph, const ShapeEnv& shapes, const LaunchOptions& options = {});

// "A0->B0.gemm"
std::string edge_name(const LaunchPlan& plan, const LaunchEdge& edge);
std::optional<uint32_t> find_kernel(const LaunchPlan& plan, std::string_view name);

}  // namespace megartp
