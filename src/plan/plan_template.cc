// PlanTemplate::make: lowers and packs the largest shape, and keeps what cutting needs.
#include "plan/plan_template.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "plan/template_data.h"

namespace megartp {
namespace plan {
namespace {

void collect_symbols(TemplateData& data) {
  std::map<std::string, SymbolUse, std::less<>> symbols;
  const auto& tensors = data.graph.tensors();
  for (TensorId id = 0; id < tensors.size(); ++id) {
    for (uint32_t d = 0; d < tensors[id].shape.size(); ++d) {
      const Dim& dim = tensors[id].shape[d];
      if (dim.is_const()) continue;
      SymbolUse& use = symbols[dim.symbol];
      use.name = dim.symbol;
      use.largest = data.largest.symbols.find(dim.symbol)->second;  // lowering has found it
      use.dims.push_back({id, d, dim.align});
    }
  }
  const auto& ops = data.graph.ops();
  for (auto& [name, use] : symbols) {
    for (OpId op = 0; op < ops.size(); ++op) {
      const auto touches = [&](const std::vector<TensorId>& ids) {
        return std::ranges::any_of(ids, [&](TensorId id) {
          return std::ranges::any_of(tensors[id].shape, [&](const Dim& dim) { return dim.symbol == name; });
        });
      };
      if (touches(ops[op].inputs) || touches(ops[op].outputs)) use.ops.push_back(op);
    }
    data.symbols.push_back(std::move(use));
  }
}

// Stages, their groups and their place among tasks. Returns the groups of the final tiles, by stage.
std::vector<std::vector<uint32_t>> collect_stages(const TaskGraph& tasks, TemplateData& data) {
  std::vector<std::vector<uint32_t>> group_of_final(tasks.stages.size());
  data.ops.resize(data.graph.ops().size());
  uint32_t first_group = 0;
  FinalDesc final;
  for (uint32_t s = 0; s < tasks.stages.size(); ++s) {
    const TaskStage& stage = tasks.stages[s];
    TemplateOp& op = data.ops[stage.op];
    op.family = find_op_family(data.graph.ops()[stage.op].kind);
    if (op.num_stages++ == 0) op.first_stage = s;
    TemplateStage t;
    t.op = stage.op;
    t.first_task = stage.first_task;
    t.first_group = first_group;
    t.counts = {stage.stage->num_tiles, stage.stage->num_join_groups, stage.stage->num_final_tiles};
    t.tiles_before_group.assign(t.counts.groups + 1, 0);
    t.end_before_group.assign(t.counts.groups + 1, 0);
    for (uint32_t i = 0; i < t.counts.tiles; ++i) {
      const uint32_t global = tasks.tasks[t.first_task + i].join_group;
      const uint32_t group = global == abi::kNoJoin ? global : global - first_group;
      data.group_of_task.push_back(group);
      if (group == abi::kNoJoin) continue;
      ++t.tiles_before_group[group + 1];
      t.end_before_group[group + 1] = i + 1;
    }
    for (uint32_t g = 0; g < t.counts.groups; ++g) {
      t.tiles_before_group[g + 1] += t.tiles_before_group[g];
      t.end_before_group[g + 1] = std::max(t.end_before_group[g + 1], t.end_before_group[g]);
    }
    for (uint32_t f = 0; f < t.counts.finals; ++f) {
      final.clear();
      stage.stage->final_tile(f, final);
      group_of_final[s].push_back(final.join_group);
    }
    first_group += t.counts.groups;
    data.stages.push_back(std::move(t));
  }
  return group_of_final;
}

void collect_events(const TaskGraph& tasks, TemplateData& data) {
  data.unit_intervals = tasks.unit_intervals;
  data.part_offsets.push_back(0);
  for (const Event& e : tasks.events) {
    const auto first = tasks.event_parts.begin() + e.first_part;
    data.event_parts.insert(data.event_parts.end(), first, first + e.num_parts);
    data.part_offsets.push_back(static_cast<uint32_t>(data.event_parts.size()));
  }
  std::vector<std::vector<Consumer>> consumers(tasks.events.size());
  for (const Task& task : tasks.tasks)
    for (uint32_t w = 0; w < task.num_waits; ++w) {
      auto& list = consumers[task.waits[w].event];
      // Tasks come in stage order, tiles ascending.
      if (list.empty() || list.back().stage != task.stage) list.push_back({task.stage, task.tile});
    }
  for (const auto& list : consumers) {
    data.consumer_offsets.push_back(static_cast<uint32_t>(data.consumers.size()));
    data.consumers.insert(data.consumers.end(), list.begin(), list.end());
  }
  data.consumer_offsets.push_back(static_cast<uint32_t>(data.consumers.size()));
}

// Which final tiles each signal of a join group counts.
void collect_signals(const TaskGraph& tasks, std::span<const std::vector<uint32_t>> group_of_final,
                     TemplateData& data) {
  std::vector<const Task*> first_of_group(tasks.join_counts.size(), nullptr);
  for (const Task& task : tasks.tasks)
    if (task.join_group != abi::kNoJoin && first_of_group[task.join_group] == nullptr)
      first_of_group[task.join_group] = &task;
  std::vector<std::vector<uint32_t>> finals(tasks.join_counts.size() * abi::kMaxSignals);
  for (uint32_t e = 0; e < tasks.events.size(); ++e) {
    for (uint32_t p = data.part_offsets[e]; p < data.part_offsets[e + 1]; ++p) {
      const EventPart& part = data.event_parts[p];
      if (group_of_final[part.stage].empty()) continue;
      for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i)
        for (uint32_t u = data.unit_intervals[i].begin; u < data.unit_intervals[i].end; ++u) {
          const uint32_t group = data.stages[part.stage].first_group + group_of_final[part.stage][u];
          const Task& task = *first_of_group[group];
          for (uint32_t k = 0; k < task.num_signals; ++k)
            if (task.signals[k].event == e && abi::publication(task.signals[k]) == part.publication)
              finals[size_t{group} * abi::kMaxSignals + k].push_back(u);
        }
    }
  }
  for (const auto& list : finals) {
    data.signal_offsets.push_back(static_cast<uint32_t>(data.signal_finals.size()));
    data.signal_finals.insert(data.signal_finals.end(), list.begin(), list.end());
  }
  data.signal_offsets.push_back(static_cast<uint32_t>(data.signal_finals.size()));
}

// What the cutting assumes of a lowered graph: waits are for whole events, signals add up unit by unit.
Status check_events(const TaskGraph& tasks, const TemplateData& data) {
  const auto unexpected = [&](std::string_view what) {
    return make_error(ErrorCode::kInternal, fmt::format("graph '{}': {}", tasks.name, what));
  };
  for (const Event& e : tasks.events) {
    uint64_t units = 0;
    for (uint32_t p = e.first_part; p < e.first_part + e.num_parts; ++p) {
      const EventPart& part = tasks.event_parts[p];
      for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i)
        units += tasks.unit_intervals[i].end - tasks.unit_intervals[i].begin;
    }
    if (units != e.threshold) return unexpected("an event's parts do not add up to its threshold");
  }
  for (const Task& task : tasks.tasks) {
    for (uint32_t w = 0; w < task.num_waits; ++w)
      if (task.waits[w].threshold != tasks.events[task.waits[w].event].threshold)
        return unexpected("a task waits for a part of an event");
    for (uint32_t k = 0; k < task.num_signals; ++k) {
      const size_t list = size_t{task.join_group} * abi::kMaxSignals + k;
      const uint32_t units =
          task.join_group == abi::kNoJoin ? 1 : data.signal_offsets[list + 1] - data.signal_offsets[list];
      if (abi::increment(task.signals[k]) != units) return unexpected("a signal is not worth the units behind it");
    }
  }
  return {};
}

void collect_links(const TaskGraph& tasks, TemplateData& data) {
  std::map<TemplateLinks, uint32_t> ids;
  for (const Task& task : tasks.tasks) {
    TemplateLinks links;
    links.stage = task.stage;
    links.group = task.join_group;
    links.num_waits = task.num_waits;
    links.num_signals = task.num_signals;
    for (uint32_t w = 0; w < task.num_waits; ++w) links.wait_events[w] = task.waits[w].event;
    for (uint32_t k = 0; k < task.num_signals; ++k) {
      links.signal_events[k] = task.signals[k].event;
      links.publications[k] = abi::publication(task.signals[k]);
    }
    const auto [it, is_new] = ids.try_emplace(links, static_cast<uint32_t>(data.links.size()));
    if (is_new) data.links.push_back(links);
    data.links_of_task.push_back(it->second);
  }
}

void collect_queues(TemplateData& data) {
  KernelPlan& plan = data.plan;
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    data.queue_offsets.push_back(static_cast<uint32_t>(data.queue.size()));
    for (uint32_t s = 0; s < plan.queue_depth; ++s) {
      const abi::Instruction& i = plan.instruction(w, s);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      data.queue.push_back(i.task_id);
    }
  }
  data.queue_offsets.push_back(static_cast<uint32_t>(data.queue.size()));
}

Status build(TaskGraph tasks, const TargetDesc& target, const PackOptions& pack_options, TemplateData& data) {
  data.finalizer = tasks.finalizer;
  data.num_sms = tasks.num_sms;
  for (const TaskStage& stage : tasks.stages)
    if (is_relay(stage))
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("graph '{}' needs relay tasks ('{}'), which a plan template cannot cut; lower each "
                                    "shape afresh",
                                    tasks.name, stage.stage->name));
  data.plan = MEGARTP_TRY(pack(tasks, target, pack_options));
  collect_symbols(data);
  const auto group_of_final = collect_stages(tasks, data);
  collect_events(tasks, data);
  collect_signals(tasks, group_of_final, data);
  MEGARTP_TRY(check_events(tasks, data));
  collect_links(tasks, data);
  collect_queues(data);
  data.order = OrderCheck(tasks, group_of_final);

  auto state = std::make_shared<InstanceState>();
  state->tensors = std::move(tasks.tensors);
  state->symbols.resize(data.symbols.size());
  state->stages.resize(data.stages.size());
  state->payloads.resize(data.links_of_task.size());
  MEGARTP_TRY(learn_ops(data, *state));
  // The largest shape's plan comes out of the same code as every other, so that no shape is special.
  state->plan = data.plan;
  MEGARTP_TRY(instantiate(data, *state, data.largest));
  data.plan.instructions.clear();
  data.plan.instructions.shrink_to_fit();
  data.prototype = std::move(state);
  return {};
}

}  // namespace
}  // namespace plan

Result<PlanTemplate> PlanTemplate::make(const OpGraph& graph, const ShapeEnv& largest,
                                        const LowerOptions& lower_options, const TargetDesc& target,
                                        const PackOptions& pack_options) {
  auto data = std::make_shared<plan::TemplateData>(graph);
  data->largest = largest;
  LowerOptions options = lower_options;
  options.any_shape = true;
  MEGARTP_TRY(plan::build(MEGARTP_TRY(lower(graph, largest, options)), target, pack_options, *data));
  return PlanTemplate(std::move(data));
}

const ShapeEnv& PlanTemplate::largest() const { return data_->largest; }

PlanInstance PlanTemplate::instance() const {
  return {data_, std::make_unique<plan::InstanceState>(*data_->prototype)};
}

PlanInstance::PlanInstance(std::shared_ptr<const plan::TemplateData> data, std::unique_ptr<plan::InstanceState> state)
    : data_(std::move(data)), state_(std::move(state)) {}
PlanInstance::PlanInstance(PlanInstance&&) noexcept = default;
PlanInstance& PlanInstance::operator=(PlanInstance&&) noexcept = default;
PlanInstance::~PlanInstance() = default;

Result<Replan> PlanInstance::instantiate(const ShapeEnv& shapes) { return plan::instantiate(*data_, *state_, shapes); }

const KernelPlan& PlanInstance::plan() const { return state_->plan; }

}  // namespace megartp
