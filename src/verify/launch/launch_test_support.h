// Small launch graphs for tests, and every single change of a launch graph.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "verify/launch/launch_graph.h"

namespace megartp::launch::test {

// Whole buffers of 64 bytes, named by the accesses.
class GraphBuilder {
 public:
  struct Contract {
    Waits waits = Waits::kNone;
    Trigger trigger = Trigger::kNone;
    std::vector<std::string> pre_reads = {}, pre_writes = {}, reads = {},
                             writes = {};  // without prefix: after the wait
  };
  GraphBuilder& kernel(const std::string& name, const Contract& contract);
  GraphBuilder& edge(const std::string& from, const std::string& to, EdgeKind kind = EdgeKind::kProgrammatic);
  Graph& graph() { return graph_; }

 private:
  uint32_t buffer(const std::string& name);
  Graph graph_;
};

struct Mutant {
  std::string change;  // "drop edge A -> B"
  Graph graph;
};
// All changes that leave a graph which passes check_graph: an edge dropped, added or of another kind; a trigger moved;
// a wait dropped or added; an access moved over the wait or the trigger, or through the read-only path; a fence dropped
// or added; two buffers made one.
std::vector<Mutant> all_mutants(const Graph& graph);

// 2 to `max_nodes` kernels over a few ranges of a few buffers.
Graph random_graph(RngSequence& rng, uint32_t max_nodes);

// tests/faults/launch: base names ("early_trigger") of the cases.
std::vector<std::string> fault_names();
std::string fault_path(const std::string& file);

}  // namespace megartp::launch::test
