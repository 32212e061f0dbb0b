// The rules that look at one node or edge at a time: R1, R7 and R9 to R13. launch_prover.cc calls them.
#pragma once

#include <vector>

#include "verify/launch/launch_finding.h"

namespace megartp::launch {

// `is_blamed[n]`: a hazard is there because node n does not wait.
void check_waits(const Graph& graph, const std::vector<char>& is_blamed, std::vector<Finding>& out);
void check_edge_kinds(const Graph& graph, std::vector<Finding>& out);
void check_replays(const Graph& graph, std::vector<Finding>& out);
void check_progress(const Graph& graph, const Order& order, std::vector<Finding>& out);
void check_counters(const Graph& graph, std::vector<Finding>& out);
void check_code(const Graph& graph, std::vector<Finding>& out);
void check_use(const Graph& graph, std::vector<Finding>& out);
// What is allowed and not advised: stores before the wait, TMA reads without a fence of their own.
void check_advice(const Graph& graph, const Order& order, std::vector<Finding>& out);

// CTAs of the kernel that one empty SM holds; 0 when the contract does not say.
uint32_t ctas_per_sm(const Device& device, const Node& node);

}  // namespace megartp::launch
