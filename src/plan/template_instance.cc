// plan::instantiate: the largest shape's plan, cut down.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lowering/index_table.h"
#include "plan/plan_limits.h"
#include "plan/template_ops.h"

namespace megartp::plan {
namespace {

bool same_shapes(const ShapeEnv& a, const ShapeEnv& b) { return a.requests == b.requests && a.symbols == b.symbols; }

uint32_t units_within(std::span<const UnitInterval> intervals, uint32_t limit) {
  uint32_t sum = 0;
  for (const UnitInterval& i : intervals) {
    if (i.begin >= limit) break;
    sum += std::min(i.end, limit) - i.begin;
  }
  return sum;
}

// Writes a whole plan from the state's stages and payloads.
class Rewriter {
 public:
  Rewriter(const TemplateData& data, InstanceState& state) : data_(data), state_(state), plan_(state.plan) {}

  Status run(const Changes& changes) {
    state_.counts.clear();
    for (const InstanceStage& s : state_.stages) state_.counts.push_back(s.counts);
    count_events();
    MEGARTP_TRY(check_order());
    // Nothing fails from here on: the plan is either the old one or the new one.
    number_stages();
    number_events();
    if (changes.specs) write_specs();
    resolve_links();
    place_tasks();
    write_instructions();
    return {};
  }

 private:
  std::span<const UnitInterval> intervals(const EventPart& part) const {
    return std::span(data_.unit_intervals).subspan(part.first_interval, part.num_intervals);
  }
  std::span<const EventPart> parts(uint32_t event) const {
    return std::span(data_.event_parts)
        .subspan(data_.part_offsets[event], data_.part_offsets[event + 1] - data_.part_offsets[event]);
  }

  void count_events() {
    const auto num_events = static_cast<uint32_t>(data_.part_offsets.size() - 1);
    state_.totals.resize(num_events);
    state_.has_consumer.resize(num_events);
    for (uint32_t e = 0; e < num_events; ++e) {
      uint32_t total = 0;
      for (const EventPart& part : parts(e)) total += units_within(intervals(part), state_.counts[part.stage].units());
      bool waited = false;
      for (uint32_t i = data_.consumer_offsets[e]; i < data_.consumer_offsets[e + 1]; ++i)
        waited = waited || data_.consumers[i].first_tile < state_.counts[data_.consumers[i].stage].tiles;
      state_.totals[e] = total;
      state_.has_consumer[e] = waited ? 1 : 0;
    }
  }

  Status check_order() {
    const auto lost = data_.order.find_lost(state_.counts, state_.totals, state_.has_consumer, state_.order);
    if (!lost) return {};
    const Consumer& consumer = data_.consumers[data_.consumer_offsets[*lost]];
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("op '{}' would no longer be ordered after tasks that only left-out tiles of op '{}' "
                                  "order before it; lower this shape afresh",
                                  op_name(consumer.stage), op_name(parts(*lost)[0].stage)));
  }
  const std::string& op_name(uint32_t stage) const { return data_.graph.ops()[data_.stages[stage].op].name; }

  void number_stages() {
    uint32_t task = 0;
    uint32_t group = 0;
    plan_.join_counts.clear();
    for (size_t s = 0; s < state_.stages.size(); ++s) {
      InstanceStage& stage = state_.stages[s];
      stage.first_task = task;
      stage.first_group = group;
      task += stage.counts.tiles;
      group += stage.counts.groups;
      const auto first = data_.plan.join_counts.begin() + data_.stages[s].first_group;
      plan_.join_counts.insert(plan_.join_counts.end(), first, first + stage.counts.groups);
    }
    plan_.num_tasks = task;
  }

  // Events that are signalled and waited for keep their order and close up.
  void number_events() {
    state_.event_id.assign(state_.totals.size(), kInvalidId);
    plan_.events.clear();
    for (uint32_t e = 0; e < state_.totals.size(); ++e) {
      if (state_.totals[e] == 0 || state_.has_consumer[e] == 0) continue;
      state_.event_id[e] = static_cast<uint32_t>(plan_.events.size());
      PlanEvent event = data_.plan.events[e];
      event.total = state_.totals[e];
      uint32_t num_producers = 0;
      for (const EventPart& part : parts(e)) {
        if (units_within(intervals(part), state_.counts[part.stage].units()) == 0) continue;
        const bool is_first = num_producers++ == 0;
        event.producer_row = is_first ? part.stage : kInvalidId;
        event.publication = is_first ? part.publication : 0;
      }
      plan_.events.push_back(event);
    }
  }

  // Equal specs share an entry, in order of their first stage: as lowering does.
  void write_specs() {
    lowering::IndexTable table;
    uint32_t count = 0;
    for (size_t s = 0; s < state_.stages.size(); ++s) {
      InstanceStage& stage = state_.stages[s];
      const uint32_t opcode = data_.plan.operand_rows[s].opcode;
      uint64_t hash = lowering::mix64(opcode);
      for (const uint32_t word : stage.spec) hash = lowering::hash_combine(hash, word);
      stage.spec_id = table.find(
          hash, [&](uint32_t i) { return plan_.specs[i].opcode == opcode && plan_.specs[i].words == stage.spec; });
      if (stage.spec_id != lowering::IndexTable::kNone) continue;
      stage.spec_id = count++;
      if (stage.spec_id == plan_.specs.size()) plan_.specs.emplace_back();
      plan_.specs[stage.spec_id].opcode = opcode;
      plan_.specs[stage.spec_id].words = stage.spec;
      table.insert(hash, stage.spec_id);
    }
    plan_.specs.resize(count);
  }

  // What a join group's last arriver adds to an event: the group's final tiles that the event counts.
  uint32_t count_finals(const TemplateLinks& links, uint32_t signal) const {
    const size_t list = size_t{links.group} * abi::kMaxSignals + signal;
    const auto begin = data_.signal_finals.begin() + data_.signal_offsets[list];
    const auto end = data_.signal_finals.begin() + data_.signal_offsets[list + 1];
    return static_cast<uint32_t>(std::lower_bound(begin, end, state_.counts[links.stage].finals) - begin);
  }

  void resolve_links() {
    state_.links.assign(data_.links.size(), {});
    for (size_t l = 0; l < data_.links.size(); ++l) {
      const TemplateLinks& from = data_.links[l];
      InstanceLinks& to = state_.links[l];
      for (uint32_t w = 0; w < from.num_waits; ++w) {
        const uint32_t event = from.wait_events[w];
        if (state_.totals[event] != 0) to.waits[to.num_waits++] = {state_.event_id[event], state_.totals[event]};
      }
      for (uint32_t k = 0; k < from.num_signals; ++k) {
        const uint32_t event = state_.event_id[from.signal_events[k]];
        if (event == kInvalidId) continue;
        const uint32_t increment = from.group == abi::kNoJoin ? 1 : count_finals(from, k);
        if (increment != 0) to.signals[to.num_signals++] = abi::make_signal(event, increment, from.publications[k]);
      }
    }
  }

  // Every task that stays keeps its worker and its place among the worker's tasks.
  void place_tasks() {
    const uint32_t num_workers = plan_.num_workers;
    state_.slot.assign(data_.links_of_task.size(), 0);
    for (size_t s = 0; s < state_.stages.size(); ++s)
      std::fill_n(state_.slot.begin() + data_.stages[s].first_task, state_.counts[s].tiles, 1U);
    state_.queue_lengths.resize(num_workers);
    uint32_t depth = 0;
    for (uint32_t w = 0; w < num_workers; ++w) {
      uint32_t length = 0;
      for (uint32_t i = data_.queue_offsets[w]; i < data_.queue_offsets[w + 1]; ++i) {
        uint32_t& slot = state_.slot[data_.queue[i]];
        slot = slot != 0 ? length++ : kInvalidId;
      }
      state_.queue_lengths[w] = length;
      depth = std::max(depth, length);
    }
    plan_.queue_depth = depth;
    plan_.instructions.resize(size_t{num_workers} * depth);
    const abi::Instruction noop = make_noop();
    for (uint32_t w = 0; w < num_workers; ++w) {
      const uint32_t first = w * depth;
      for (uint32_t i = data_.queue_offsets[w]; i < data_.queue_offsets[w + 1]; ++i) {
        uint32_t& slot = state_.slot[data_.queue[i]];
        if (slot != kInvalidId) slot += first;
      }
      std::fill(plan_.instructions.begin() + first + state_.queue_lengths[w],
                plan_.instructions.begin() + first + depth, noop);
    }
  }

  void write_instructions() {
    for (uint32_t s = 0; s < state_.stages.size(); ++s) {
      const InstanceStage& stage = state_.stages[s];
      const TemplateStage& largest = data_.stages[s];
      const uint32_t opcode = data_.plan.operand_rows[s].opcode;
      for (uint32_t t = 0; t < stage.counts.tiles; ++t) {
        const uint32_t task = largest.first_task + t;
        const InstanceLinks& links = state_.links[data_.links_of_task[task]];
        const Payload& payload = state_.payloads[task];
        const uint32_t group = data_.group_of_task[task];
        const bool is_fused = group != abi::kNoJoin;
        abi::Instruction& out = plan_.instructions[state_.slot[task]];
        out.opcode = opcode;
        out.spec_id = stage.spec_id;
        out.counts = abi::make_counts(links.num_waits, links.num_signals, payload.count);
        out.operand_row = s;
        out.task_id = stage.first_task + t;
        out.join_counter = is_fused ? stage.first_group + group : abi::kNoJoin;
        out.join_count = is_fused ? plan_.join_counts[stage.first_group + group] : 0;
        out.reserved0 = 0;
        std::memcpy(out.waits, links.waits.data(), sizeof(out.waits));
        std::memcpy(out.signals, links.signals.data(), sizeof(out.signals));
        std::memcpy(out.payload, payload.words.data(), sizeof(out.payload));
      }
    }
  }

  const TemplateData& data_;
  InstanceState& state_;
  KernelPlan& plan_;
};

void write_tensors(InstanceState& state) {
  for (const TensorId id : state.changed_tensors) {
    PlanTensor& t = state.plan.tensors[id];
    t.dims = state.tensors[id].dims;
    t.num_bytes = size_in_bytes(t.dtype);
    for (const int64_t d : t.dims) t.num_bytes *= static_cast<uint64_t>(d);
  }
}

void patch_payloads(const TemplateData& data, InstanceState& state) {
  for (const uint32_t s : state.changed_stages) {
    const uint32_t first = data.stages[s].first_task;
    for (uint32_t t = first; t < first + state.stages[s].counts.tiles; ++t)
      std::memcpy(state.plan.instructions[state.slot[t]].payload, state.payloads[t].words.data(),
                  sizeof(abi::Instruction::payload));
  }
}

}  // namespace

Result<Replan> instantiate(const TemplateData& data, InstanceState& state, const ShapeEnv& shapes) {
  if (state.is_current && same_shapes(shapes, state.plan.shapes)) return Replan::kNothing;
  const bool same_symbols = state.is_current && shapes.symbols == state.plan.shapes.symbols;
  if (!same_symbols) MEGARTP_TRY(read_symbols(data, shapes, state));
  state.changed_tensors.clear();
  state.changed_stages.clear();
  state.op_changed.assign(data.ops.size(), state.is_current ? 0 : 1);
  if (!same_symbols) apply_symbols(data, state);
  for (OpId op = 0; op < data.ops.size(); ++op)
    if (data.ops[op].reads_shapes) state.op_changed[op] = 1;
  const bool was_current = state.is_current;
  state.is_current = false;
  Changes changes = MEGARTP_TRY(lower_changed_ops(data, shapes, state));
  if (!was_current) changes = {true, true, true};
  const bool patch = same_symbols && !changes.counts && !changes.specs && !changes.payload_sizes;
  if (patch) {
    patch_payloads(data, state);
    state.plan.shapes.requests = shapes.requests;
  } else {
    MEGARTP_TRY(Rewriter(data, state).run(changes));
    state.plan.shapes = shapes;
  }
  write_tensors(state);
  state.is_current = true;
  return patch ? Replan::kPatch : Replan::kRewrite;
}

}  // namespace megartp::plan
