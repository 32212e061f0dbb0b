// Proves that a launch graph is free of races on global memory between its nodes, or names what breaks it.
//
// Called by `megartp verify launch` and by whoever builds launch graphs. The relations of launch_order.h are exact for
// the model of docs/launch-graphs.md: a hazard is reported if and only if some interleaving shows it (the mutation test
// compares with launch_explore.h). Rules about usefulness and about what the documentation merely advises are warnings.
#pragma once

#include <cstddef>

#include "verify/launch/launch_finding.h"

namespace megartp::launch {

struct ProveOptions {
  size_t max_findings = 1000;
  size_t max_explained = 12;         // hazards for which remedies are searched, and
  size_t max_explained_nodes = 128;  // the largest graph for which they are
  size_t max_flips = 512;            // edges that are tried the other way for the proof lines; fewer in large graphs
};

// The graph has passed check_graph.
Proof prove(const Graph& graph, const ProveOptions& options = {});

// The same for a converted program: its own findings come first.
struct LoweredProgram;
Proof prove(const LoweredProgram& program, const ProveOptions& options = {});

// All conflicts that nothing orders; what prove reports as R2, R3, R5, R6, R11 or R14.
std::vector<Conflict> find_hazards(const Graph& graph);

// "R2 error: ..." with its steps and remedies on further lines.
std::string finding_text(const Graph& graph, const Finding& finding);

}  // namespace megartp::launch
