#include "cli/plan_partition.h"

#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "partition/partition_json.h"

namespace megartp::cli {
namespace {

struct Lowered {
  PartitionGraph graph;
  TaskGraph tasks;
};

Result<Lowered> lower_file(const std::string& path, const std::string& event_mode) {
  Lowered out;
  EventOptions options;
  options.mode = MEGARTP_TRY(parse_event_mode(event_mode));
  const std::string text = MEGARTP_TRY(read_file(path == "-" ? "/dev/stdin" : path));
  auto graph = partition_graph_from_json(text);
  if (!graph) return tl::unexpected(std::move(graph).error().with("path", path));
  out.graph = std::move(*graph);
  auto tasks = lower_partition_graph(out.graph, options);
  if (!tasks) return tl::unexpected(std::move(tasks).error().with("path", path));
  out.tasks = std::move(*tasks);
  return out;
}

std::string events_text(const StageEdge& edge) {
  if (edge.is_implied) return "implied";
  std::string text;
  for (const EventShape& e : edge.events)
    text += fmt::format("{}{} -> {} x{}", text.empty() ? "" : ", ", e.triggers, e.consumers, e.count);
  return text;
}

std::string hazards_text(const StageEdge& edge) {
  std::string text;
  for (const HazardKind kind : {HazardKind::kRaw, HazardKind::kWar, HazardKind::kWaw})
    if ((edge.hazards & 1U << static_cast<uint32_t>(kind)) != 0)
      text += fmt::format("{}{}", text.empty() ? "" : " ", to_string(kind));
  return text;
}

void print_tables(const Lowered& lowered) {
  const TaskGraph& tasks = lowered.tasks;
  const PartitionCounts counts = count_partition(tasks);
  std::cout << fmt::format(
      "{} ops: {} tasks, {} relay tasks, {} events ({}); {} tasks wait for nothing, nothing waits for {}\n\n",
      lowered.graph.ops.size(), counts.tasks, counts.relay_tasks, counts.events, to_string(tasks.event_mode),
      counts.roots, counts.end_triggers);
  Table ops({"op", "grid", "tasks"});
  for (const PartitionOp& op : lowered.graph.ops)
    ops.add_row({op.name, fmt::format("{}", fmt::join(op.grid, " x ")), std::to_string(op.num_tasks())});
  std::cout << ops.to_string();
  if (tasks.edges.empty()) return;
  Table edges({"edge", "tensor", "hazards", "policy", "triggers -> consumers x events"});
  for (const StageEdge& edge : tasks.edges)
    edges.add_row({fmt::format("{} -> {}", tasks.op_names[tasks.stages[edge.producer_stage].op],
                               tasks.op_names[tasks.stages[edge.consumer_stage].op]),
                   tasks.tensors[edge.tensor].name, hazards_text(edge), std::string(to_string(edge.policy)),
                   events_text(edge)});
  std::cout << "\n" << edges.to_string();
}

}  // namespace

int run_plan_partition(const std::string& path, const std::string& event_mode, const CommonOptions& common) {
  const Lowered lowered = value_or_exit(lower_file(path, event_mode), common, "plan");
  if (common.json) return print_json("plan", Json::parse(partition_result_json(lowered.graph, lowered.tasks)));
  if (common.quiet) return 0;
  for (const std::string& warning : partition_warnings(lowered.graph))
    std::cerr << "megartp: warning: " << warning << "\n";
  print_tables(lowered);
  return 0;
}

}  // namespace megartp::cli
