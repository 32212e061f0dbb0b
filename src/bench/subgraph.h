// Part of a graph as a graph of its own: for timing some ops in the persistent kernel.
#pragma once

#include <span>
#include <string>

#include "megartp/op_graph.h"

namespace megartp::bench {

// The named ops (all when there are none), in the graph's order. What left-out ops would write is an argument; what a
// kept op updates in place without having a producer is a state. No tensor is an output: results stay in the workspace.
// kInvalidArgument when the graph has no such op.
Result<OpGraph> subgraph(const OpGraph& graph, std::span<const std::string> ops);

}  // namespace megartp::bench
