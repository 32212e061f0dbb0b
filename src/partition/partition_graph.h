// Partition graphs: ops as grids of abstract tasks, tensors as what the grids cut. Nothing is computed; they are there
// to study how tasks depend on each other. docs/partition-graphs.md has the format and the rules.
//
//   op "C", grid (4, 2, 1), reads t with map (0, -1, -1):
//     task (x, y, z) reads rows [x, x+1) * extent/4 of t, whatever y
//
// Called by `megartp plan --partition-graph` and by tests. A partition graph is plain data and may hold nonsense until
// check_partition_graph has accepted it; lower_partition_graph checks by itself.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "megartp/error.h"

namespace megartp {

// Opcode of abstract tasks. No op family may use numbers this high, so no backend takes one for work.
inline constexpr uint32_t kOpcodeAbstract = 0x7f000000;

inline constexpr int64_t kMaxGridAxis = int64_t{1} << 20;

struct PartitionTensor {
  std::string name;
  std::optional<std::vector<int64_t>> shape;  // none: extents into which every part count divides
};

// How an op's grid cuts one tensor: the tensor dim that grid axis x, y, z splits, or -1. Axes that share a dim split it
// into the product of their sizes; x counts slowest.
struct PartitionAccess {
  std::string tensor;
  std::array<int64_t, 3> map{-1, -1, -1};
};

struct PartitionOp {
  std::string name;
  std::array<int64_t, 3> grid{1, 1, 1};  // task number = (x * grid[1] + y) * grid[2] + z
  std::vector<PartitionAccess> inputs;
  std::vector<PartitionAccess> outputs;

  int64_t num_tasks() const { return grid[0] * grid[1] * grid[2]; }
};

struct PartitionGraph {
  std::vector<PartitionTensor> tensors;  // those with something to say; others come into being when ops name them
  std::vector<PartitionOp> ops;          // in program order
};

// Every rule that has nothing to do with JSON: names, grids, maps, extents, the number of tasks. Errors name op, tensor
// and axis.
Status check_partition_graph(const PartitionGraph& graph);

// One stage an op, one task a grid point, events by `options`.
Result<TaskGraph> lower_partition_graph(const PartitionGraph& graph, const EventOptions& options = {});

// What is allowed, and yet hardly meant: several tasks that write the same region, tasks beyond a tensor's extent, an
// op that reads what other tasks of the same op write. One sentence each. The graph must have passed the check.
std::vector<std::string> partition_warnings(const PartitionGraph& graph);

}  // namespace megartp
