#include "plan/plan_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ops/op_family.h"

namespace megartp {
namespace {

using OrderedJson = nlohmann::ordered_json;

// What the instructions say about one event. Task ids ascend once sorted.
struct EventUse {
  std::vector<uint32_t> producers;
  std::vector<std::pair<uint32_t, uint32_t>> consumers;  // (operand row, task)
};

// Inclusive ranges [[first, last], ...] of ascending ids.
OrderedJson to_ranges(const std::vector<uint32_t>& ids) {
  OrderedJson ranges = OrderedJson::array();
  for (size_t i = 0; i < ids.size();) {
    size_t j = i + 1;
    while (j < ids.size() && ids[j] == ids[j - 1] + 1) ++j;
    ranges.push_back({ids[i], ids[j - 1]});
    i = j;
  }
  return ranges;
}

OrderedJson events_list(const KernelPlan& plan) {
  std::vector<EventUse> uses(plan.events.size());
  for (const abi::Instruction& i : plan.instructions) {
    if (i.opcode == abi::kOpcodeNoOp) continue;
    for (uint32_t w = 0; w < abi::num_waits(i); ++w)
      uses[i.waits[w].event].consumers.emplace_back(i.operand_row, i.task_id);
    for (uint32_t s = 0; s < abi::num_signals(i); ++s) uses[i.signals[s].event].producers.push_back(i.task_id);
  }
  OrderedJson list = OrderedJson::array();
  for (size_t e = 0; e < uses.size(); ++e) {
    EventUse& use = uses[e];
    std::ranges::sort(use.producers);
    std::ranges::sort(use.consumers);
    // An event of several rows has no op of its own; disassemble to see who signals it.
    const uint32_t row_id = plan.events[e].producer_row;
    const std::string op = row_id == kInvalidId ? "several" : plan.operand_rows[row_id].op;
    OrderedJson consumers = OrderedJson::object();
    for (size_t i = 0; i < use.consumers.size();) {
      const uint32_t r = use.consumers[i].first;
      std::vector<uint32_t> tasks;
      for (; i < use.consumers.size() && use.consumers[i].first == r; ++i) tasks.push_back(use.consumers[i].second);
      // An op with a finalizer of its own has two rows; both go under the op.
      OrderedJson& entry = consumers[plan.operand_rows[r].op];
      if (entry.is_null()) entry = {{"count", 0}, {"tasks", OrderedJson::array()}};
      entry["count"] = entry["count"].get<size_t>() + tasks.size();
      for (OrderedJson& range : to_ranges(tasks)) entry["tasks"].push_back(std::move(range));
    }
    list.push_back({{"id", e},
                    {"threshold", plan.events[e].total},
                    {"publication", plan.events[e].publication},
                    {"producers",
                     {{"op", op},
                      {"row", producer_name(plan, static_cast<uint32_t>(e))},
                      {"count", use.producers.size()},
                      {"tasks", to_ranges(use.producers)}}},
                    {"consumers", std::move(consumers)}});
  }
  return list;
}

OrderedJson operand_table(const KernelPlan& plan) {
  OrderedJson table = OrderedJson::array();
  for (const PlanOperandRow& row : plan.operand_rows) {
    OrderedJson slots = OrderedJson::array();
    for (const uint32_t t : row.tensors)
      slots.push_back(t == kInvalidId ? OrderedJson(nullptr) : OrderedJson(plan.tensors[t].name));
    table.push_back(
        {{"name", row.name}, {"op", row.op}, {"opcode", opcode_name(row.opcode)}, {"slots", std::move(slots)}});
  }
  return table;
}

OrderedJson tensors(const KernelPlan& plan) {
  OrderedJson list = OrderedJson::array();
  for (const PlanTensor& t : plan.tensors)
    list.push_back(
        {{"name", t.name},
         {"dtype", to_string(t.dtype)},
         {"dims", t.dims},
         {"storage", to_string(t.storage)},
         {"bytes", t.num_bytes},
         {"arena_offset", t.arena_offset == kExternal ? OrderedJson(nullptr) : OrderedJson(t.arena_offset)}});
  return list;
}

OrderedJson specs(const KernelPlan& plan) {
  OrderedJson list = OrderedJson::array();
  for (const PlanSpec& spec : plan.specs) {
    const OpFamily* family = find_op_family_by_opcode(spec.opcode);
    list.push_back({{"opcode", opcode_name(spec.opcode)},
                    {"text", family == nullptr ? "" : family->describe_spec(spec.words)},
                    {"words", spec.words}});
  }
  return list;
}

}  // namespace

std::string plan_to_json(const KernelPlan& plan) {
  std::vector<size_t> tasks_of_row(plan.operand_rows.size(), 0);
  size_t noops = 0;
  uint32_t workers_full = 0;
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    size_t padding = 0;
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp)
        ++padding;
      else
        ++tasks_of_row[i.operand_row];
    }
    noops += padding;
    workers_full += padding == 0 ? 1U : 0U;
  }
  OrderedJson tasks_per_op = OrderedJson::object();
  for (size_t r = 0; r < tasks_of_row.size(); ++r) {
    OrderedJson& count = tasks_per_op[plan.operand_rows[r].op];
    count = (count.is_null() ? 0 : count.get<size_t>()) + tasks_of_row[r];
  }
  OrderedJson requests = OrderedJson::array();
  for (const RequestShape& r : plan.shapes.requests) requests.push_back({{"rows", r.num_rows}, {"kv", r.kv_len}});
  const OrderedJson json{{"graph", plan.graph_name},
                         {"graph_hash", plan.graph_hash},
                         {"target", plan.target},
                         {"packer", plan.packer},
                         {"finalizer", plan.finalizer},
                         {"symbols", plan.shapes.symbols},
                         {"requests", std::move(requests)},
                         {"tasks", plan.num_tasks},
                         {"events", plan.events.size()},
                         {"join_counters", plan.join_counts.size()},
                         {"workers", plan.num_workers},
                         {"queue_depth", plan.queue_depth},
                         {"queue_shape", {plan.num_workers, plan.queue_depth, abi::kInstructionWords}},
                         {"workers_full", workers_full},
                         {"noops", noops},
                         {"workspace_bytes", plan.workspace_bytes},
                         {"tasks_per_op", std::move(tasks_per_op)},
                         {"events_list", events_list(plan)},
                         {"operand_table_shape", {plan.operand_rows.size(), abi::kOperandSlots}},
                         {"operand_table", operand_table(plan)},
                         {"tensors", tensors(plan)},
                         {"specs", specs(plan)}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace megartp
