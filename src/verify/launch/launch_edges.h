// One line per edge: why it may be programmatic, or why it must be full.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/launch/launch_finding.h"

namespace megartp::launch {

// `hazards`: those of the graph. An edge is tried the other way while `max_flips` lasts.
std::vector<EdgeProof> prove_edges(const Graph& graph, const std::vector<Conflict>& hazards, size_t max_flips);

}  // namespace megartp::launch
