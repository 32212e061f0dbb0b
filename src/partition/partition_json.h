// The JSON forms of partition graphs: the file that is read, and the result that `megartp plan --partition-graph
// --json` prints. docs/partition-graphs.md describes both.
#pragma once

#include <string>
#include <string_view>

#include "megartp/error.h"
#include "partition/partition_graph.h"

namespace megartp {

// A graph that has passed check_partition_graph. Strict: unknown and repeated keys, wrong types and everything that the
// check refuses are errors of code kParse that name the place, the op and the tensor; a syntax error names its line.
Result<PartitionGraph> partition_graph_from_json(std::string_view text);

// The file form; reading it gives the same graph.
std::string to_json(const PartitionGraph& graph);

// Tasks, events and edges of a lowered partition graph, with op names instead of stage numbers.
std::string partition_result_json(const PartitionGraph& graph, const TaskGraph& tasks);

// What the result counts.
struct PartitionCounts {
  uint64_t tasks = 0;  // without relay tasks
  uint64_t relay_tasks = 0;
  uint64_t events = 0;
  uint64_t roots = 0;         // tasks that wait for nothing
  uint64_t end_triggers = 0;  // tasks that nothing waits for
};
PartitionCounts count_partition(const TaskGraph& tasks);

}  // namespace megartp
