// An oracle of dependencies: looks at every pair of tasks, knows nothing of how events were derived.
//
// For tests of lowering. Takes regions from Stage::tile() and Stage::final_tile(), waits and signals from the tasks,
// and says in sentences what is wrong:
//
//   - two tasks whose regions overlap, with at least one write, are not ordered by trigger -> event -> wait;
//   - an event's threshold is not what its parts, or the signals that name it, add up to;
//   - task ids are not topological (so tasks might wait in a circle), or a wait can never be served;
//   - with no_coarser: a task waits for a unit that no overlap asks for.
//
// Orders are followed through relay tasks. Sets are bitsets: a few thousand tasks take milliseconds, the 17,730 of
// Qwen3-8B about a second and 100 MB.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lowering/task_graph.h"

namespace megartp::test {

struct OracleOptions {
  // Each unit that a task waits for must be required: its region overlaps (with a write) the task's, or that of another
  // task that is required.
  bool no_coarser = false;
  size_t max_problems = 10;
};

// Empty when the graph is right; else at most max_problems sentences.
std::vector<std::string> dependency_problems(const TaskGraph& graph, const OracleOptions& options = {});

}  // namespace megartp::test
