#include "lowering/explain.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::lowering {
namespace {

// What events of a stage count: tiles, or the final tiles of a fused stage.
uint32_t num_units(const Stage& stage) { return stage.num_join_groups == 0 ? stage.num_tiles : stage.num_final_tiles; }

Granularity granularity_of(const TaskGraph& graph, const StageEdge& edge) {
  const auto is_fine = [](const EventShape& e) { return e.triggers == 1 || e.consumers == 1; };
  if (edge.num_events == 1 && edge.events.size() == 1 &&
      edge.events[0].triggers >= num_units(*graph.stages[edge.producer_stage].stage))
    return Granularity::kBarrier;
  if (edge.num_events > 1 && !edge.events.empty() && std::ranges::all_of(edge.events, is_fine))
    return Granularity::kPerTile;
  return Granularity::kGroups;
}

}  // namespace

std::string_view to_string(Granularity granularity) {
  switch (granularity) {
    case Granularity::kBarrier: return "barrier";
    case Granularity::kGroups: return "groups";
    case Granularity::kPerTile: return "per_tile";
  }
  return "?";
}

GraphExplanation explain_edges(const TaskGraph& graph) {
  GraphExplanation out;
  out.edges.reserve(graph.edges.size());
  for (const StageEdge& edge : graph.edges) {
    EdgeExplanation& e = out.edges.emplace_back();
    e.edge = edge;
    if (edge.is_implied) {
      ++out.num_implied;
      continue;
    }
    e.costs = EdgeCosts{.exact_us = edge.exact_us, .chosen_us = edge.chosen_us, .whole_us = edge.whole_us};
    e.granularity = granularity_of(graph, edge);
    switch (e.granularity) {
      case Granularity::kBarrier: ++out.num_barriers; break;
      case Granularity::kGroups: ++out.num_groups; break;
      case Granularity::kPerTile: ++out.num_per_tile; break;
    }
  }
  std::vector<uint64_t> signallers(graph.events.size(), 0);
  for (const Task& task : graph.tasks)
    for (uint32_t i = 0; i < task.num_signals; ++i) ++signallers[task.signals[i].event];
  out.num_events = graph.events.size();
  for (size_t e = 0; e < graph.events.size(); ++e) out.num_task_pairs += signallers[e] * graph.events[e].num_consumers;
  if (out.num_events != 0)
    out.pairs_per_event = static_cast<double>(out.num_task_pairs) / static_cast<double>(out.num_events);
  return out;
}

std::string hazards_text(const StageEdge& edge) {
  std::string text;
  for (const HazardKind kind : {HazardKind::kRaw, HazardKind::kWar, HazardKind::kWaw})
    if ((edge.hazards >> static_cast<uint32_t>(kind) & 1U) != 0)
      text += fmt::format("{}{}", text.empty() ? "" : "+", to_string(kind));
  return text.empty() ? std::string(to_string(edge.hazard)) : text;
}

std::string events_text(const StageEdge& edge) {
  constexpr size_t kMaxShapes = 4;
  std::string text;
  for (size_t i = 0; i < edge.events.size(); ++i) {
    if (i == kMaxShapes) return text + fmt::format(", ... ({} shapes)", edge.events.size());
    const EventShape& e = edge.events[i];
    text += fmt::format("{}{}->{}", i == 0 ? "" : ", ", e.triggers, e.consumers);
    if (e.count != 1) text += fmt::format(" x{}", e.count);
  }
  return text.empty() ? "-" : text;
}

std::string granularity_text(const EdgeExplanation& e) {
  if (e.edge.is_implied) return "implied";
  switch (e.granularity) {
    case Granularity::kBarrier: return "barrier";
    case Granularity::kPerTile: return "per tile";
    case Granularity::kGroups: return fmt::format("{} group{}", e.edge.num_events, e.edge.num_events == 1 ? "" : "s");
  }
  return "?";
}

}  // namespace megartp::lowering
