// explain_edges(): what was decided for every edge between stages, for people (`megartp plan --explain`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/task_graph.h"

namespace megartp::lowering {

enum class Granularity : uint8_t {
  kBarrier,  // one event that counts every unit of the producer
  kGroups,   // several events, or one over a part of the producer, some with several triggers and several consumers
  kPerTile,  // several events, each with one trigger or one consumer: nobody waits for a unit on behalf of a neighbour
};
std::string_view to_string(Granularity granularity);

// What a cost model thinks of an edge: the time that waiting and signalling take with events as fine as the regions
// allow, as they are, and with one barrier.
struct EdgeCosts {
  double exact_us = 0;
  double chosen_us = 0;
  double whole_us = 0;
};

struct EdgeExplanation {
  StageEdge edge;
  Granularity granularity = Granularity::kGroups;  // of a live edge
  std::optional<EdgeCosts> costs;
};

// Live edges are those that an event carries; the others are implied.
struct GraphExplanation {
  std::vector<EdgeExplanation> edges;  // in the graph's order
  uint32_t num_per_tile = 0;
  uint32_t num_groups = 0;
  uint32_t num_barriers = 0;
  uint32_t num_implied = 0;
  uint64_t num_events = 0;
  uint64_t num_task_pairs = 0;  // (task that signals an event, task that waits for it), summed over events
  // "Fusion ratio". Large where barriers are: one event between 128 and 128 tasks encodes 16384 pairs.
  double pairs_per_event = 0;
};

// Linear in tasks and edges.
GraphExplanation explain_edges(const TaskGraph& graph);

// "raw", "raw+waw".
std::string hazards_text(const StageEdge& edge);
// "16->1 x8, 4->1": triggers, consumers and, where there are several, the number of such events.
std::string events_text(const StageEdge& edge);
// "barrier", "per tile", "4 groups", "implied".
std::string granularity_text(const EdgeExplanation& edge);

}  // namespace megartp::lowering
