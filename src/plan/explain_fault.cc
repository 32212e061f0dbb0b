// explain_fault: from the records of a stuck run to the one thing that is wrong.
//
// Every waiting record has somebody who has yet to signal. If that task stands behind another wait, the cause lies
// there; the walk ends at a task that ran without its signal arriving, at one that still runs, at an event that nobody
// signals, or in a circle.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "ops/op_family.h"
#include "plan/fault_dump.h"

namespace megartp {
namespace {

using abi::FaultRecord;
using abi::kFaultNone;

struct Place {
  uint32_t worker = kFaultNone;
  uint32_t slot = kFaultNone;
};

std::string role_name(uint32_t role) {
  static constexpr std::array<std::string_view, abi::kFaultRoles> kNames = {
      "?", "worker", "scheduler", "controller", "activation loader", "weight loader", "consumer", "store warp"};
  return std::string(kNames[role]);
}

// The task that has yet to signal, and why.
struct Missing {
  uint32_t task = kFaultNone;
  Place place;
  uint32_t state = abi::kFaultMissingUnknown;
  uint32_t num_candidates = 1;  // finished tasks of which one did not signal, when it is not known which
};

class Explainer {
 public:
  Explainer(const FaultDump& dump, const KernelPlan* plan) : dump_(dump), plan_(plan) {
    for (size_t i = 0; i < dump.records.size(); ++i) {
      const FaultRecord& r = dump.records[i];
      if (r.role != abi::kFaultRoleScheduler && r.worker != kFaultNone) of_worker_.emplace(r.worker, i);
      if (r.task_id != kFaultNone) of_task_.emplace(r.task_id, i);
    }
    if (plan != nullptr) index_plan();
  }

  FaultExplanation run() {
    FaultExplanation out;
    for (const FaultRecord& r : dump_.records) out.lines.push_back(line(r));
    const auto first =
        std::ranges::find_if(dump_.records, [](const FaultRecord& r) { return r.phase == abi::kFaultPhaseWaiting; });
    if (first == dump_.records.end()) {
      const auto running =
          std::ranges::find_if(dump_.records, [](const FaultRecord& r) { return r.phase == abi::kFaultPhaseRunning; });
      out.sentence = running == dump_.records.end()
                         ? std::string("nobody waits and nobody runs: the run was given up between two instructions")
                         : fmt::format("nobody waits: {} still runs {}", who(*running), at(*running));
      return out;
    }
    out.sentence = explain(static_cast<size_t>(first - dump_.records.begin()));
    return out;
  }

 private:
  void index_plan() {
    places_.resize(plan_->num_tasks);
    first_task_.assign(plan_->operand_rows.size(), kFaultNone);
    instructions_.assign(plan_->num_tasks, nullptr);
    for (uint32_t w = 0; w < plan_->num_workers; ++w) {
      for (uint32_t s = 0; s < plan_->queue_depth; ++s) {
        const abi::Instruction& i = plan_->instruction(w, s);
        if (i.opcode == abi::kOpcodeNoOp) continue;
        places_[i.task_id] = {w, s};
        instructions_[i.task_id] = &i;
        uint32_t& first = first_task_[i.operand_row];
        first = std::min(first, i.task_id);
      }
    }
  }

  bool is_dynamic() const { return dump_.schedule == abi::kScheduleDynamic; }

  std::string op_of(const FaultRecord& r) const {
    if (plan_ != nullptr && r.operand_row < plan_->operand_rows.size()) return plan_->operand_rows[r.operand_row].name;
    return r.opcode == kFaultNone ? "?" : std::string(opcode_name(r.opcode));
  }

  std::string event_of(uint32_t event) const {
    if (plan_ == nullptr) return fmt::format("event {}", event);
    return fmt::format("event {} of {}", event, producer_name(*plan_, event));
  }

  // "task 87 (B0 tile 84, worker 1 slot 9)"
  std::string task_label(uint32_t task, const Place& place) const {
    std::string inside;
    if (plan_ != nullptr && instructions_[task] != nullptr) {
      const uint32_t row = instructions_[task]->operand_row;
      inside = fmt::format("{} tile {}", plan_->operand_rows[row].name, task - first_task_[row]);
    }
    if (place.worker != kFaultNone) {
      inside += fmt::format("{}worker {}", inside.empty() ? "" : ", ", place.worker);
      if (place.slot != kFaultNone) inside += fmt::format(" slot {}", place.slot);
    }
    return inside.empty() ? fmt::format("task {}", task) : fmt::format("task {} ({})", task, inside);
  }

  static std::string who(const FaultRecord& r) {
    if (r.role == abi::kFaultRoleScheduler) return "the scheduler";
    std::string name = r.worker == kFaultNone ? std::string("a worker") : fmt::format("worker {}", r.worker);
    if (r.role != abi::kFaultRoleWorker) name = fmt::format("the {} of {}", role_name(r.role), name);
    return name;
  }

  std::string at(const FaultRecord& r) const {
    if (r.task_id == kFaultNone) return "no task";
    return fmt::format("{}task {}", op_of(r) == "?" ? "" : op_of(r) + " ", r.task_id);
  }

  // "worker 2 waits in slot 5 (D1, task 311) for event 12 of B0: 15 of 16 signals came"
  std::string waits(const FaultRecord& r) const {
    if (r.role == abi::kFaultRoleScheduler)
      return fmt::format("the scheduler holds task {} ({}) back for {}: {} of {} signals came", r.task_id, op_of(r),
                         event_of(r.event), r.actual, r.expected);
    const std::string where = r.slot == kFaultNone ? ""
                              : is_dynamic()       ? fmt::format(" after {} {}", r.slot, r.slot == 1 ? "task" : "tasks")
                                                   : fmt::format(" in slot {}", r.slot);
    return fmt::format("{} waits{} ({}, task {}) for {}: {} of {} signals came", who(r), where, op_of(r), r.task_id,
                       event_of(r.event), r.actual, r.expected);
  }

  // Under static queues: has the instruction at `place` run?
  uint32_t state_of(const Place& place) const {
    const auto it = of_worker_.find(place.worker);
    if (it == of_worker_.end()) return abi::kFaultMissingUnknown;
    const FaultRecord& r = dump_.records[it->second];
    if (r.phase == abi::kFaultPhaseDone) return abi::kFaultMissingFinished;
    if (r.slot == kFaultNone) return abi::kFaultMissingUnknown;
    if (r.slot != place.slot) return r.slot > place.slot ? abi::kFaultMissingFinished : abi::kFaultMissingNotStarted;
    return r.phase == abi::kFaultPhaseRunning ? abi::kFaultMissingRunning : abi::kFaultMissingNotStarted;
  }

  std::vector<uint32_t> signallers(uint32_t event) const {
    std::vector<uint32_t> tasks;
    for (uint32_t t = 0; t < plan_->num_tasks; ++t) {
      const abi::Instruction* i = instructions_[t];
      if (i == nullptr) continue;
      for (uint32_t s = 0; s < abi::num_signals(*i); ++s)
        if (i->signals[s].event == event) {
          tasks.push_back(t);
          break;
        }
    }
    return tasks;
  }

  Missing missing_of(const FaultRecord& r) const {
    Missing m;
    if (r.missing_task != kFaultNone) {
      m.task = r.missing_task;
      m.place = {r.missing_worker, r.missing_slot};
      m.state = r.missing_state;
      if (plan_ != nullptr && m.place.worker == kFaultNone && !is_dynamic()) m.place = places_[m.task];
      return m;
    }
    // The waiter could not tell (a device has no list of who has signalled): under static queues the plan can.
    if (plan_ == nullptr || is_dynamic()) return m;
    uint32_t finished = 0;
    for (const uint32_t t : signallers(r.event)) {
      const uint32_t state = state_of(places_[t]);
      if (state == abi::kFaultMissingFinished) {
        ++finished;
        if (m.task != kFaultNone) continue;
      } else if (m.task != kFaultNone && m.state != abi::kFaultMissingFinished) {
        continue;
      }
      m.task = t;
      m.place = places_[t];
      m.state = state;
    }
    if (m.state == abi::kFaultMissingFinished) m.num_candidates = finished;
    return m;
  }

  // The waiting record that keeps the missing task from running.
  std::optional<size_t> blocker(const Missing& m) const {
    if (m.state == abi::kFaultMissingFinished || m.state == abi::kFaultMissingRunning) return std::nullopt;
    if (const auto it = of_task_.find(m.task);
        it != of_task_.end() && dump_.records[it->second].phase == abi::kFaultPhaseWaiting)
      return it->second;
    if (is_dynamic()) return std::nullopt;
    const auto it = of_worker_.find(m.place.worker);
    if (it == of_worker_.end() || dump_.records[it->second].phase != abi::kFaultPhaseWaiting) return std::nullopt;
    return it->second;
  }

  std::string explain(size_t start) const {
    std::vector<size_t> chain = {start};
    while (true) {
      const FaultRecord& r = dump_.records[chain.back()];
      const Missing m = missing_of(r);
      if (m.task == kFaultNone) return waits(r) + "; " + nobody(r) + behind(chain.size());
      const std::optional<size_t> next = blocker(m);
      if (!next) return waits(r) + "; " + root(m) + behind(chain.size());
      if (const auto again = std::ranges::find(chain, *next); again != chain.end()) {
        std::string circle;
        for (auto it = again; it != chain.end(); ++it) circle += who(dump_.records[*it]) + " -> ";
        const FaultRecord& b = dump_.records[*next];
        return fmt::format("{}; {} never signalled because {} waits for {}, and the waits form a circle: {}{}",
                           waits(r), task_label(m.task, m.place), who(b), event_of(b.event), circle, who(b));
      }
      chain.push_back(*next);
    }
  }

  std::string nobody(const FaultRecord& r) const {
    if (plan_ == nullptr) return "who has yet to signal is not recorded; give the plan";
    const std::vector<uint32_t> tasks = signallers(r.event);
    if (tasks.empty()) return "no instruction signals it";
    return fmt::format("all signals of its {} tasks together are not enough", tasks.size());
  }

  std::string root(const Missing& m) const {
    const std::string task = task_label(m.task, m.place);
    switch (m.state) {
      case abi::kFaultMissingFinished:
        if (m.num_candidates > 1)
          return fmt::format("all {} tasks that signal it ran (the first is {}), so the signal of one was lost",
                             m.num_candidates, task);
        return fmt::format("{} never signalled because it ran to its end and its signal was lost", task);
      case abi::kFaultMissingRunning: return fmt::format("{} has not signalled because it is still running", task);
      case abi::kFaultMissingNotStarted:
        return fmt::format("{} never signalled because nobody has started it, and its worker does not wait", task);
      default: return fmt::format("{} has not signalled, and where it stands is not recorded", task);
    }
  }

  static std::string behind(size_t chain_length) {
    if (chain_length <= 1) return "";
    return fmt::format("; the first waiter found waits behind this, {} {} away", chain_length - 1,
                       chain_length == 2 ? "step" : "steps");
  }

  std::string line(const FaultRecord& r) const {
    std::string text;
    switch (r.phase) {
      case abi::kFaultPhaseWaiting: text = waits(r); break;
      case abi::kFaultPhaseRunning: text = fmt::format("{} runs {}", who(r), at(r)); break;
      case abi::kFaultPhaseDone: text = fmt::format("{} has finished", who(r)); break;
      default: text = fmt::format("{} is between two tasks", who(r)); break;
    }
    if (r.phase != abi::kFaultPhaseWaiting) return text;
    if (r.missing_task != kFaultNone)
      text += fmt::format("; to signal: {}", task_label(r.missing_task, {r.missing_worker, r.missing_slot}));
    if (r.last_task != kFaultNone)
      text += fmt::format("; last signalled by {}", task_label(r.last_task, {r.last_worker, r.last_slot}));
    return text;
  }

  const FaultDump& dump_;
  const KernelPlan* plan_;
  std::unordered_map<uint32_t, size_t> of_worker_, of_task_;  // index of the first such record
  std::vector<Place> places_;                                 // of tasks
  std::vector<uint32_t> first_task_;                          // of operand rows
  std::vector<const abi::Instruction*> instructions_;         // of tasks
};

}  // namespace

Result<FaultExplanation> explain_fault(const FaultDump& dump, const KernelPlan* plan) {
  if (plan != nullptr) {
    const bool has_hash = dump.plan_hash != Hash128{};
    if (plan->num_workers != dump.num_workers || plan->num_tasks != dump.num_tasks ||
        plan->events.size() != dump.num_events || plan->queue_depth != dump.queue_depth ||
        (has_hash && hash128(serialize_plan(*plan)) != dump.plan_hash))
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("the fault dump is of another plan: {} tasks, {} workers x {}, {} events, hash {}",
                      dump.num_tasks, dump.num_workers, dump.queue_depth, dump.num_events, dump.plan_hash.hex()));
  }
  return Explainer(dump, plan).run();
}

}  // namespace megartp
