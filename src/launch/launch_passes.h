// The passes of build_launch_plan, in their order. Each takes the plan as the last one left it.
#pragma once

#include <vector>

#include "launch/launch_plan.h"

namespace megartp::launching {

// Resolves the tensors and asks the families for their kernels.
Status collect_kernels(const OpGraph& graph, const ShapeEnv& shapes, const LaunchOptions& options, LaunchPlan& plan);

// One edge for every pair of kernels that touch a tensor of which one of them writes: RAW, WAR and WAW, whole tensors.
// Full edges, sorted, nothing reduced.
std::vector<LaunchEdge> true_edges(const LaunchPlan& plan);
// Each kernel after the one before it; reasons as in `edges`, none where the two share nothing.
std::vector<LaunchEdge> chain_edges(const LaunchPlan& plan, const std::vector<LaunchEdge>& edges);
// For every edge of a sorted list whether a longer path leads from its one end to the other.
std::vector<char> redundant_edges(size_t num_kernels, const std::vector<LaunchEdge>& edges);

// Fills estimated_us; and priorities: the sooner a kernel would be done, the more urgent it is; a kernel and the one
// right after it in this order share a priority when the one waits for the other. A long kernel fills every SM, so a
// short one behind it would wait for most of it, and what follows the short one too; the other way round the long one
// hardly notices (docs/performance.md).
void estimate_costs(LaunchPlan& plan);
// The longest path to each kernel's start, microseconds.
std::vector<double> estimated_starts(const LaunchPlan& plan);
// Puts the kernels in the order of their estimated starts, short ones first; edges follow. A kernel never comes before
// one that it depends on.
void sort_by_start(LaunchPlan& plan);
void set_priorities(LaunchPlan& plan);

// The wait that serves the programmatic in-edges of each kernel: the highest of their levels.
void set_waits(LaunchPlan& plan);
// What the prover is asked about. Names of tensors that messages could not show become "t<id>".
launch::Graph proof_graph(const LaunchPlan& plan, uint32_t replay_streams);

// Sets kinds and levels of plan.edges, drops edges that others imply, and fills graph, proof and the edges' sentences.
Status decide_edges(const LaunchOptions& options, LaunchPlan& plan);

}  // namespace megartp::launching
