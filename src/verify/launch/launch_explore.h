// Runs small launch graphs in every order in which the device might run them, and watches the accesses.
//
// The machine has no relations between nodes: it has CTAs that start, touch memory, wait, trigger and exit, grids that
// complete (and only then flush their writes), full edges that launch after completion and make everything complete
// visible, programmatic edges that launch after every CTA triggered or exited, fences that publish earlier writes and
// pass on what their CTA has seen. An access that happens before a conflicting access of an earlier node has happened,
// or sees less than it wrote, is a race. Tests compare the prover with it; it takes graphs of a few nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verify/launch/launch_finding.h"

namespace megartp::launch {

struct ExploreOptions {
  uint32_t max_ctas = 2;  // of a kernel; grids larger than that are cut
  uint64_t max_states = 2'000'000;
  // Steps that touch no memory happen as soon as they can: postponing them hides races and makes none.
  bool is_reduced = true;
};

struct Exploration {
  std::vector<Conflict> races;  // ordered as find_conflicts orders them
  uint64_t num_states = 0;
  bool is_complete = true;  // false: max_states was reached
};

constexpr size_t kMaxExploredNodes = 12;

// The graph has passed check_graph and has no more nodes than that, else kUnsupported.
Result<Exploration> explore(const Graph& graph, const ExploreOptions& options = {});

// Runs the steps of a counter-example: an error when one cannot happen when its turn comes; else whether the last step
// races with the first access of the conflict.
Result<bool> replay_story(const Graph& graph, const Conflict& conflict, std::span<const Step> steps);

}  // namespace megartp::launch
