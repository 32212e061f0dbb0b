#include "lowering/relays.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace megartp::lowering {
namespace {

class RelayStage final : public Stage {
 public:
  RelayStage(std::string stage_name, uint32_t count) {
    name = std::move(stage_name);
    opcode = abi::kOpcodeRelay;
    num_tiles = count;
  }
  void tile(uint32_t /*tile_idx*/, TileDesc& /*out*/) const override {}
};

uint32_t relay_spec(TaskGraph& graph) {
  const std::vector<uint32_t> spec{abi::kOpcodeRelay};
  const auto it = std::ranges::find(graph.specs, spec);
  if (it != graph.specs.end()) return static_cast<uint32_t>(it - graph.specs.begin());
  graph.specs.push_back(spec);
  return static_cast<uint32_t>(graph.specs.size() - 1);
}

}  // namespace

Status insert_relays(TaskGraph& graph, std::vector<Relay> relays) {
  if (graph.tasks.size() + relays.size() > std::numeric_limits<int32_t>::max())
    return make_error(ErrorCode::kOutOfResources, fmt::format("graph '{}': more than 2^31 tasks", graph.name));
  // Place 2s is before stage s, 2s + 1 after it.
  const auto place = [](const Relay& r) { return 2 * uint64_t{r.stage} + (r.is_after ? 1 : 0); };
  std::ranges::stable_sort(relays, {}, place);
  const uint32_t spec = relay_spec(graph);
  std::vector<TaskStage> old_stages = std::move(graph.stages);
  std::vector<Task> old_tasks = std::move(graph.tasks);
  graph.stages.clear();
  graph.tasks.clear();
  graph.tasks.reserve(old_tasks.size() + relays.size());
  std::vector<uint32_t> new_stage(old_stages.size());

  auto next = relays.begin();
  const auto append_relays = [&](uint32_t s, uint64_t at) -> Status {
    const auto begin = next;
    while (next != relays.end() && place(*next) == at) ++next;
    if (begin == next) return {};
    TaskStage stage;
    const bool is_after = (at & 1) != 0;
    stage.stage = std::make_unique<RelayStage>(
        fmt::format("{}.{}", old_stages[s].stage ? old_stages[s].stage->name : graph.stages[new_stage[s]].stage->name,
                    is_after ? "relay_out" : "relay_in"),
        static_cast<uint32_t>(next - begin));
    stage.op = old_stages[s].op;
    stage.spec_id = spec;
    stage.first_task = static_cast<uint32_t>(graph.tasks.size());
    for (auto r = begin; r != next; ++r) {
      Task& task = graph.tasks.emplace_back();
      task.stage = static_cast<uint32_t>(graph.stages.size());
      task.opcode = abi::kOpcodeRelay;
      task.tile = static_cast<uint32_t>(r - begin);
      for (const uint32_t event : r->waits) {
        task.waits[task.num_waits++] = {event, graph.events[event].threshold};
        ++graph.events[event].num_consumers;
      }
      for (const auto& [event, increment] : r->signals) {
        if (increment > abi::kMaxIncrement)
          return make_error(ErrorCode::kOutOfResources, fmt::format("stage '{}': an increment of {}, at most {} fits",
                                                                    stage.stage->name, increment, abi::kMaxIncrement));
        task.signals[task.num_signals++] = abi::make_signal(event, static_cast<uint32_t>(increment), 0);
      }
    }
    graph.stages.push_back(std::move(stage));
    return {};
  };

  for (uint32_t s = 0; s < old_stages.size(); ++s) {
    MEGARTP_TRY(append_relays(s, 2 * uint64_t{s}));
    new_stage[s] = static_cast<uint32_t>(graph.stages.size());
    const uint32_t first = old_stages[s].first_task;
    const uint32_t count = old_stages[s].stage->num_tiles;
    old_stages[s].first_task = static_cast<uint32_t>(graph.tasks.size());
    for (uint32_t t = first; t < first + count; ++t) {
      graph.tasks.push_back(old_tasks[t]);
      graph.tasks.back().stage = new_stage[s];
    }
    TaskStage moved;
    moved.stage = std::move(old_stages[s].stage);
    moved.op = old_stages[s].op;
    moved.first_task = old_stages[s].first_task;
    moved.spec_id = old_stages[s].spec_id;
    graph.stages.push_back(std::move(moved));
    MEGARTP_TRY(append_relays(s, 2 * uint64_t{s} + 1));
  }
  for (StageEdge& edge : graph.edges) {
    edge.producer_stage = new_stage[edge.producer_stage];
    edge.consumer_stage = new_stage[edge.consumer_stage];
  }
  for (EventPart& part : graph.event_parts) part.stage = new_stage[part.stage];
  return {};
}

}  // namespace megartp::lowering
