#include "trace/from_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "ops/op_family.h"
#include "trace/raw_clock.h"

namespace megartp::trace {
namespace {

template <class... Args>
tl::unexpected<Error> bad_record(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "trace records: " + fmt::format(format, std::forward<Args>(args)...));
}

constexpr uint32_t kNoRecord = ~uint32_t{0};

class PlanTraceMaker {
 public:
  PlanTraceMaker(const KernelPlan& plan, std::span<const TaskCost> costs, const RawTrace& raw)
      : plan_(plan), costs_(costs), raw_(raw), clock_(raw) {}

  Result<Trace> make(TraceMeta meta) {
    if (!clock_.is_valid())
      return bad_record("the run is from {} to {} ticks of {} ns", raw_.begin, raw_.end, raw_.ns_per_tick);
    trace_.meta = std::move(meta);
    fill_meta();
    for (uint32_t w = 0; w < plan_.num_workers; ++w) trace_.lanes.push_back({fmt::format("worker {}", w), w});
    for (const PlanOperandRow& row : plan_.operand_rows)
      trace_.ops.push_back({row.name, std::string(opcode_name(row.opcode))});
    index_instructions();
    MEGARTP_TRY(add_tasks());
    MEGARTP_TRY(add_roles());
    add_events();
    MEGARTP_TRY(check_trace(trace_));
    return std::move(trace_);
  }

 private:
  void fill_meta() {
    TraceMeta& m = trace_.meta;
    m.graph = plan_.graph_name;
    m.target = plan_.target;
    m.packer = plan_.packer;
    for (const auto& [name, value] : plan_.shapes.symbols) m.shapes.emplace_back(name, value);
    m.clock_domain = raw_.clock_domain;
    m.clock_resolution_ns = raw_.resolution_ns;
    m.begin_ns = clock_.begin_ns();
    m.span_ns = clock_.span_ns();
    m.num_lost =
        std::max<uint64_t>(raw_.num_lost, plan_.num_tasks - std::min<uint64_t>(plan_.num_tasks, raw_.tasks.size()));
    if (const auto target = find_target(plan_.target)) {
      m.read_gb_per_s = target->read_gb_per_s;
      m.gflops = target->gflops;
    }
  }

  void index_instructions() {
    instruction_of_.assign(plan_.num_tasks, nullptr);
    for (const abi::Instruction& i : plan_.instructions)
      if (i.opcode != abi::kOpcodeNoOp) instruction_of_[i.task_id] = &i;
  }

  Status add_tasks() {
    std::vector<const abi::TraceRecord*> records;
    for (const abi::TraceRecord& r : raw_.tasks) records.push_back(&r);
    std::ranges::sort(records, {}, [](const abi::TraceRecord* r) { return std::tuple(r->worker, r->slot); });
    index_of_.assign(plan_.num_tasks, kNoRecord);
    std::map<uint32_t, uint32_t> groups;  // numbers of join groups in the trace
    for (const abi::TraceRecord* r : records) {
      MEGARTP_TRY(check_record(*r));
      const abi::Instruction& i = *instruction_of_[r->task_id];
      TraceTask task;
      task.id = r->task_id;
      task.lane = r->worker;
      task.position = r->slot;
      task.op = i.operand_row;
      task.tile = text_of(i);
      if (i.join_counter != abi::kNoJoin)
        task.join_group = groups.emplace(i.join_counter, static_cast<uint32_t>(groups.size())).first->second;
      task.sent = (r->flags & abi::kTraceSent) != 0;
      const auto visible = clock_.ns(r->visible), ready = clock_.ns(r->ready), done = clock_.ns(r->done);
      if (!visible || !ready || !done || r->visible > r->ready || r->ready > r->done)
        return bad_record("task {}: visible {}, ready {}, done {} in a run from {} to {}", r->task_id, r->visible,
                          r->ready, r->done, raw_.begin, raw_.end);
      task.visible_ns = *visible;
      task.ready_ns = *ready;
      task.done_ns = *done;
      if (task.id < costs_.size()) {
        task.weight_bytes = costs_[task.id].weight_bytes;
        task.other_bytes = costs_[task.id].other_bytes;
        task.flops = costs_[task.id].flops;
      }
      index_of_[task.id] = static_cast<uint32_t>(trace_.tasks.size());
      trace_.tasks.push_back(task);
    }
    return {};
  }

  Status check_record(const abi::TraceRecord& r) const {
    if (r.worker >= plan_.num_workers || r.task_id >= plan_.num_tasks || instruction_of_[r.task_id] == nullptr)
      return bad_record("task {} of {} on worker {} of {}", r.task_id, plan_.num_tasks, r.worker, plan_.num_workers);
    if (index_of_[r.task_id] != kNoRecord) return bad_record("task {} comes twice", r.task_id);
    if (trace_.meta.schedule == "static" &&
        (r.slot >= plan_.queue_depth || plan_.instruction(r.worker, r.slot).task_id != r.task_id ||
         plan_.instruction(r.worker, r.slot).opcode == abi::kOpcodeNoOp))
      return bad_record("task {} does not stand at worker {}, slot {}", r.task_id, r.worker, r.slot);
    if (!trace_.tasks.empty() && trace_.tasks.back().lane == r.worker && trace_.tasks.back().position == r.slot)
      return bad_record("worker {} has two tasks at slot {}", r.worker, r.slot);
    return {};
  }

  uint32_t text_of(const abi::Instruction& i) {
    const OpFamily* family = find_op_family_by_opcode(i.opcode);
    std::string text = family != nullptr ? family->describe_payload(i.opcode, i.payload) : std::string();
    const auto [at, is_new] = texts_.emplace(std::move(text), static_cast<uint32_t>(trace_.texts.size()));
    if (is_new) trace_.texts.push_back(at->first);
    return at->second;
  }

  Status add_roles() {
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> at;
    if (!raw_.roles.empty())
      for (uint32_t i = 0; i < trace_.tasks.size(); ++i) at[{trace_.tasks[i].lane, trace_.tasks[i].position}] = i;
    for (const abi::TraceRoleRecord& r : raw_.roles) {
      const auto task = at.find({r.worker, r.slot});
      const auto begin = clock_.ns(r.begin), end = clock_.ns(r.end);
      if (task == at.end() || r.role == 0 || r.role >= abi::kTraceRoles || !begin || !end || *begin > *end)
        return bad_record("role {} of worker {}, slot {} from {} to {}", r.role, r.worker, r.slot, r.begin, r.end);
      trace_.roles.push_back({task->second, r.role, *begin, *end});
    }
    std::ranges::stable_sort(trace_.roles, {}, [](const RoleInterval& r) { return std::tuple(r.task, r.begin_ns); });
    return {};
  }

  void add_events() {
    trace_.events.resize(plan_.events.size());
    for (uint32_t e = 0; e < plan_.events.size(); ++e)
      trace_.events[e].name = fmt::format("e{} {}", e, producer_name(plan_, e));
    // In the order of trace tasks, so that the lists are sorted.
    for (uint32_t t = 0; t < trace_.tasks.size(); ++t) {
      const abi::Instruction& i = *instruction_of_[trace_.tasks[t].id];
      for (uint32_t k = 0; k < abi::num_signals(i); ++k) {
        std::vector<EventSignal>& list = trace_.events[i.signals[k].event].signals;
        if (!list.empty() && list.back().task == t)
          list.back().increment += abi::increment(i.signals[k]);
        else
          list.push_back({t, abi::increment(i.signals[k])});
      }
      for (uint32_t k = 0; k < abi::num_waits(i); ++k) {
        std::vector<EventWait>& list = trace_.events[i.waits[k].event].waits;
        if (!list.empty() && list.back().task == t)
          list.back().threshold = std::max(list.back().threshold, i.waits[k].threshold);
        else
          list.push_back({t, i.waits[k].threshold});
      }
    }
  }

  const KernelPlan& plan_;
  std::span<const TaskCost> costs_;
  const RawTrace& raw_;
  RawClock clock_;
  Trace trace_;
  std::vector<const abi::Instruction*> instruction_of_;  // by task id
  std::vector<uint32_t> index_of_;                       // by task id: in trace_.tasks
  std::map<std::string, uint32_t, std::less<>> texts_;
};

}  // namespace

Result<Trace> trace_of_plan(const KernelPlan& plan, std::span<const TaskCost> costs, const RawTrace& raw,
                            TraceMeta meta) {
  return PlanTraceMaker(plan, costs, raw).make(std::move(meta));
}

Result<Trace> trace_of_simulation(const KernelPlan& plan, std::span<const TaskCost> costs, const SimResult& result) {
  RawTrace raw;
  raw.clock_domain = "simulated";
  raw.end = result.span_ns;
  for (uint32_t w = 0; w < plan.num_workers; ++w)
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      const SimTimes& t = result.tasks[i.task_id];
      raw.tasks.push_back({w, slot, i.task_id, t.sent ? abi::kTraceSent : 0, t.visible_ns, t.ready_ns, t.done_ns, 0});
    }
  std::vector<std::pair<uint32_t, uint32_t>> place(plan.num_tasks);
  for (const abi::TraceRecord& r : raw.tasks) place[r.task_id] = {r.worker, r.slot};
  for (const SimPart& part : result.parts)
    raw.roles.push_back({place[part.task].first, place[part.task].second,
                         part.is_read ? abi::kTraceRoleWeights : abi::kTraceRoleCompute, 0, part.begin_ns,
                         part.end_ns});
  TraceMeta meta;
  meta.name = fmt::format("{}, {}, simulated", plan.target, plan.packer);
  meta.backend = "simulated";
  meta.machine = plan.target;
  meta.schedule = "static";
  return trace_of_plan(plan, costs, raw, std::move(meta));
}

}  // namespace megartp::trace
