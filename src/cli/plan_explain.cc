// megartp plan --explain: per edge what its consumers wait for and how finely.
#include <algorithm>

#include <fmt/format.h>

#include "cli/plan_views.h"
#include "lowering/explain.h"

namespace megartp::cli {
namespace {

using lowering::EdgeExplanation;
using lowering::GraphExplanation;

const std::string& stage_name(const TaskGraph& graph, uint32_t stage) { return graph.stages[stage].stage->name; }

std::string tensor_name(const TaskGraph& graph, const StageEdge& edge) {
  return edge.tensor < graph.tensors.size() ? graph.tensors[edge.tensor].name : "-";
}

bool has_costs(const GraphExplanation& e) {
  return std::ranges::any_of(e.edges, [](const EdgeExplanation& edge) { return edge.costs.has_value(); });
}

Table edge_table(const TaskGraph& graph, const GraphExplanation& explanation) {
  const bool with_costs = has_costs(explanation);
  std::vector<std::string> header{
      "producer", "consumer", "tensor", "hazards", "policy", "events", "triggers->consumers", "granularity"};
  if (with_costs) header.insert(header.end(), {"exact us", "chosen us", "whole us"});
  Table table(std::move(header));
  for (const EdgeExplanation& e : explanation.edges) {
    std::vector<std::string> row{stage_name(graph, e.edge.producer_stage),
                                 stage_name(graph, e.edge.consumer_stage),
                                 tensor_name(graph, e.edge),
                                 lowering::hazards_text(e.edge),
                                 std::string(to_string(e.edge.policy)),
                                 std::to_string(e.edge.num_events),
                                 lowering::events_text(e.edge),
                                 lowering::granularity_text(e)};
    if (with_costs) {
      if (e.costs)
        for (const double us : {e.costs->exact_us, e.costs->chosen_us, e.costs->whole_us})
          row.push_back(fmt::format("{:.2f}", us));
      else
        row.insert(row.end(), {"-", "-", "-"});
    }
    table.add_row(std::move(row));
  }
  return table;
}

Json edge_json(const TaskGraph& graph, const EdgeExplanation& e) {
  Json j;
  j["producer"] = stage_name(graph, e.edge.producer_stage);
  j["consumer"] = stage_name(graph, e.edge.consumer_stage);
  j["tensor"] = tensor_name(graph, e.edge);
  j["hazards"] = Json::array();
  for (const HazardKind kind : {HazardKind::kRaw, HazardKind::kWar, HazardKind::kWaw})
    if (kind == e.edge.hazard || (e.edge.hazards >> static_cast<uint32_t>(kind) & 1U) != 0)
      j["hazards"].push_back(to_string(kind));
  j["policy"] = to_string(e.edge.policy);
  j["implied"] = e.edge.is_implied;
  j["granularity"] = e.edge.is_implied ? Json(nullptr) : Json(to_string(e.granularity));
  j["num_events"] = e.edge.num_events;
  j["events"] = Json::array();
  for (const EventShape& shape : e.edge.events)
    j["events"].push_back({{"triggers", shape.triggers}, {"consumers", shape.consumers}, {"count", shape.count}});
  if (e.costs)
    j["costs"] = {{"exact_us", e.costs->exact_us}, {"chosen_us", e.costs->chosen_us}, {"whole_us", e.costs->whole_us}};
  return j;
}

}  // namespace

std::string explain_text(const TaskGraph& graph) {
  const GraphExplanation e = lowering::explain_edges(graph);
  return edge_table(graph, e).to_string() +
         fmt::format(
             "\nlive edges by granularity: {} per tile, {} grouped, {} barrier; {} implied\n"
             "{} events encode {} task pairs, {:.1f} an event\n",
             e.num_per_tile, e.num_groups, e.num_barriers, e.num_implied, e.num_events, e.num_task_pairs,
             e.pairs_per_event);
}

Json explain_json(const TaskGraph& graph) {
  const GraphExplanation e = lowering::explain_edges(graph);
  Json j;
  j["event_mode"] = to_string(graph.event_mode);
  j["live_edges"] = {{"per_tile", e.num_per_tile}, {"groups", e.num_groups}, {"barrier", e.num_barriers}};
  j["implied_edges"] = e.num_implied;
  j["events"] = e.num_events;
  j["task_pairs"] = e.num_task_pairs;
  j["pairs_per_event"] = e.pairs_per_event;
  j["edges"] = Json::array();
  for (const EdgeExplanation& edge : e.edges) j["edges"].push_back(edge_json(graph, edge));
  return j;
}

}  // namespace megartp::cli
