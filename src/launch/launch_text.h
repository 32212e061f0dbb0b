// Launch plans for people and tools.
#pragma once

#include <string>

#include "launch/launch_plan.h"

namespace megartp {

// What `megartp verify launch` reads: the contracts and the edges.
std::string to_json(const LaunchPlan& plan);
// Kernels and edges; dashed edges are programmatic.
std::string to_dot(const LaunchPlan& plan);
std::string to_mermaid(const LaunchPlan& plan);
// Why each edge is there, what kind it has and what the prover says to it; one line an edge, then the prover's
// warnings.
std::string explain(const LaunchPlan& plan);

}  // namespace megartp
