#include "backends/cpu_threads/stall_report.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace megartp {

bool StallReport::same_places(const StallReport& other) const {
  if (workers.size() != other.workers.size() || activity != other.activity) return false;
  for (size_t w = 0; w < workers.size(); ++w) {
    const StalledWorker& a = workers[w];
    const StalledWorker& b = other.workers[w];
    if (a.phase != b.phase || a.slot != b.slot || a.task != b.task || a.wait_idx != b.wait_idx) return false;
  }
  return true;
}

StallReport look_at(const PlanRuntime& runtime, std::span<const WorkerState> states) {
  StallReport report;
  report.all_waiting = true;
  bool any_waiting = false;
  for (const WorkerState& state : states) {
    StalledWorker s;
    s.phase = state.phase.load(std::memory_order_relaxed);
    s.slot = state.slot.load(std::memory_order_relaxed);
    s.task = state.task.load(std::memory_order_relaxed);
    s.wait_idx = state.wait_idx.load(std::memory_order_relaxed) % abi::kMaxWaits;
    report.any_running = report.any_running || s.phase == WorkerPhase::kRunning;
    if (s.phase == WorkerPhase::kWaiting && s.task < runtime.plan().num_tasks &&
        s.wait_idx < abi::num_waits(runtime.instruction_of(s.task))) {
      const abi::Wait& wait = runtime.instruction_of(s.task).waits[s.wait_idx];
      s.actual = runtime.count(wait.event);
      any_waiting = true;
      if (s.actual >= wait.threshold) report.all_waiting = false;  // about to go on
    } else {
      // The parts of a look may be of different times; what does not fit together is no waiting.
      if (s.phase == WorkerPhase::kWaiting) s.phase = WorkerPhase::kIdle;
      if (s.phase != WorkerPhase::kDone) report.all_waiting = false;
    }
    report.workers.push_back(s);
  }
  report.all_waiting = report.all_waiting && any_waiting;
  return report;
}

// Stuck when no task is under way and each that has not started waits for an event: only running tasks signal.
StallReport look_at_tasks(const PlanRuntime& runtime, std::span<const WorkerState> states,
                          std::span<const uint32_t> order) {
  constexpr size_t kMaxHeldRecords = 16;
  StallReport report = look_at(runtime, states);
  const auto is_at_a_worker = [&report](uint32_t task) {
    return std::ranges::any_of(
        report.workers, [task](const StalledWorker& w) { return w.phase == WorkerPhase::kWaiting && w.task == task; });
  };
  report.all_waiting = true;
  bool any_waiting = false;
  for (const uint32_t t : order) {
    const TaskState state = runtime.state(t);
    if (state == TaskState::kSent) continue;
    if (state == TaskState::kRan && t == runtime.options().lose_signals_of) continue;
    const std::optional<uint32_t> wait = state == TaskState::kNotStarted ? runtime.first_unreached(t) : std::nullopt;
    if (!wait) {  // under way, or about to be
      report.all_waiting = false;
      continue;
    }
    any_waiting = true;
    if (report.held.size() < kMaxHeldRecords && !is_at_a_worker(t))
      report.held.push_back({t, *wait, runtime.count(runtime.instruction_of(t).waits[*wait].event)});
  }
  report.all_waiting = report.all_waiting && any_waiting;
  return report;
}

namespace {

class StallWriter {
 public:
  StallWriter(const PlanRuntime& runtime, const StallReport& report, bool proved)
      : runtime_(runtime),
        plan_(runtime.plan()),
        report_(report),
        proved_(proved),
        is_static_(runtime.options().schedule == Schedule::kStatic) {}

  Stall run() {
    Stall stall;
    std::string first;
    uint32_t waiting = 0;
    for (uint32_t w = 0; w < plan_.num_workers; ++w) {
      const bool waits = report_.workers[w].phase == WorkerPhase::kWaiting;
      waiting += waits ? 1 : 0;
      if (waits && first.empty()) first = worker_line(w);
      stall.error.details += worker_line(w) + "\n";
    }
    for (const HeldTask& held : report_.held) {
      const std::string line = "scheduler: " + wait_text(held.task, held.wait_idx, held.actual);
      if (first.empty()) first = line;
      stall.error.details += line + "\n";
    }
    const std::string head = proved_
                                 ? std::string("deadlock: every unfinished worker waits")
                                 : fmt::format("time-out: no progress for {} ms", runtime_.options().timeout.count());
    stall.error.code = proved_ ? ErrorCode::kDeadlock : ErrorCode::kTimeout;
    stall.error.message = fmt::format("{} ({} of {} workers wait){}{}", head, waiting, plan_.num_workers,
                                      first.empty() ? "" : "; first: ", first);
    fill_dump(stall.dump);
    if (const auto explained = explain_fault(stall.dump, &plan_))
      stall.error.details += "cause: " + explained->sentence + "\n";
    return stall;
  }

 private:
  std::string label(uint32_t task) const {
    const std::string& row = plan_.operand_rows[runtime_.instruction_of(task).operand_row].name;
    if (!is_static_) return fmt::format("task {} of {}", task, row);
    return fmt::format("task {} of {} (worker {}, slot {})", task, row, runtime_.worker_of(task),
                       runtime_.slot_of(task));
  }

  std::string missing_signallers(uint32_t event) const {
    constexpr size_t kShown = 4;
    const std::vector<uint32_t> tasks = runtime_.unsent(event);
    if (tasks.empty()) return "no instruction is left that would signal it";
    std::string text;
    for (size_t i = 0; i < std::min(tasks.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + label(tasks[i]);
    if (tasks.size() > kShown) text += fmt::format(" and {} more", tasks.size() - kShown);
    return "still to be signalled by " + text;
  }

  std::string wait_text(uint32_t task, uint32_t wait_idx, uint64_t actual) const {
    const abi::Wait& wait = runtime_.instruction_of(task).waits[wait_idx];
    return fmt::format("{} waits for event {} of {}: expects {}, has {}; {}", label(task), wait.event,
                       producer_name(plan_, wait.event), wait.threshold, actual, missing_signallers(wait.event));
  }

  std::string worker_line(uint32_t w) const {
    const StalledWorker& s = report_.workers[w];
    if (s.phase == WorkerPhase::kDone) return fmt::format("worker {}: finished", w);
    if (s.phase == WorkerPhase::kIdle && !is_static_) return fmt::format("worker {}: has nothing to do", w);
    if (s.phase == WorkerPhase::kIdle || s.task >= plan_.num_tasks)
      return fmt::format("worker {}: {}", w, s.slot == 0 ? "not started" : "leaving");
    if (s.phase == WorkerPhase::kRunning) return fmt::format("worker {}: runs {}", w, label(s.task));
    return fmt::format("worker {}: {}", w, wait_text(s.task, s.wait_idx, s.actual));
  }

  void fill_wait(abi::FaultRecord& r, uint32_t task, uint32_t wait_idx, uint64_t actual) const {
    const abi::Wait& wait = runtime_.instruction_of(task).waits[wait_idx];
    r.kind = proved_ ? abi::kFaultDeadlock : abi::kFaultDeadline;
    r.phase = abi::kFaultPhaseWaiting;
    r.wait_idx = wait_idx;
    r.event = wait.event;
    r.expected = wait.threshold;
    r.actual = actual;
    if (const uint32_t last = runtime_.last_signaller(wait.event); last < plan_.num_tasks && actual != 0) {
      r.last_task = last;
      if (is_static_) {
        r.last_worker = runtime_.worker_of(last);
        r.last_slot = runtime_.slot_of(last);
      }
    }
    const std::vector<uint32_t> missing = runtime_.unsent(wait.event);
    if (missing.empty()) return;
    r.missing_task = missing.front();
    if (is_static_) {
      r.missing_worker = runtime_.worker_of(r.missing_task);
      r.missing_slot = runtime_.slot_of(r.missing_task);
    }
    switch (runtime_.state(r.missing_task)) {
      case TaskState::kNotStarted: r.missing_state = abi::kFaultMissingNotStarted; break;
      case TaskState::kRunning: r.missing_state = abi::kFaultMissingRunning; break;
      default: r.missing_state = abi::kFaultMissingFinished; break;
    }
  }

  void name_task(abi::FaultRecord& r, uint32_t task) const {
    if (task >= plan_.num_tasks) return;
    const abi::Instruction& i = runtime_.instruction_of(task);
    r.task_id = task;
    r.opcode = i.opcode;
    r.operand_row = i.operand_row;
  }

  void fill_dump(FaultDump& dump) const {
    dump = make_fault_dump(plan_);
    dump.schedule = is_static_ ? abi::kScheduleStatic : abi::kScheduleDynamic;
    dump.timeout_ms = static_cast<uint32_t>(runtime_.options().timeout.count());
    for (uint32_t w = 0; w < plan_.num_workers; ++w) {
      const StalledWorker& s = report_.workers[w];
      abi::FaultRecord r = abi::make_fault_record();
      r.worker = w;
      r.slot = s.slot;
      r.epoch = runtime_.epoch();
      if (s.phase == WorkerPhase::kDone) {
        r.phase = abi::kFaultPhaseDone;
      } else if (s.phase != WorkerPhase::kIdle) {
        name_task(r, s.task);
        r.phase = abi::kFaultPhaseRunning;
        if (s.phase == WorkerPhase::kWaiting) fill_wait(r, s.task, s.wait_idx, s.actual);
      }
      dump.records.push_back(r);
    }
    for (const HeldTask& held : report_.held) {
      abi::FaultRecord r = abi::make_fault_record();
      r.role = abi::kFaultRoleScheduler;
      r.epoch = runtime_.epoch();
      name_task(r, held.task);
      fill_wait(r, held.task, held.wait_idx, held.actual);
      dump.records.push_back(r);
    }
  }

  const PlanRuntime& runtime_;
  const KernelPlan& plan_;
  const StallReport& report_;
  bool proved_;
  bool is_static_;
};

}  // namespace

Stall describe_stall(const PlanRuntime& runtime, const StallReport& report, bool proved) {
  return StallWriter(runtime, report, proved).run();
}

Status watch(ThreadTeam& team, const PlanRuntime& runtime, const std::function<StallReport()>& look,
             const std::function<void()>& abort, FaultDump& dump) {
  using Clock = std::chrono::steady_clock;
  StallReport last;
  auto last_progress = Clock::now();
  while (!team.wait_for(std::chrono::milliseconds(20))) {
    StallReport now = look();
    const auto time = Clock::now();
    const bool same = now.same_places(last);
    if (!same || now.any_running) last_progress = time;
    const bool stuck = same && now.all_waiting && last.all_waiting;
    if (stuck || time - last_progress > runtime.options().timeout) {
      // Before anybody leaves: task states and counters still tell what was going on.
      Stall stall = describe_stall(runtime, now, stuck);
      abort();
      team.wait();
      dump = std::move(stall.dump);
      return tl::unexpected(std::move(stall.error));
    }
    last = std::move(now);
  }
  return {};
}

}  // namespace megartp
