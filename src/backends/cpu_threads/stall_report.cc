#include "backends/cpu_threads/stall_report.h"

#include <fmt/format.h>

#include "ops/op_family.h"

namespace megartp {

bool StallReport::same_places(const StallReport& other) const {
  if (workers.size() != other.workers.size()) return false;
  for (size_t w = 0; w < workers.size(); ++w) {
    const StalledWorker& a = workers[w];
    const StalledWorker& b = other.workers[w];
    if (a.phase != b.phase || a.slot != b.slot || a.wait_idx != b.wait_idx) return false;
  }
  return true;
}

namespace {

std::string instruction_label(const KernelPlan& plan, uint32_t worker, uint32_t slot) {
  const abi::Instruction& i = plan.instruction(worker, slot);
  return fmt::format("task {} of {} (worker {}, slot {})", i.task_id, plan.operand_rows[i.operand_row].name, worker,
                     slot);
}

// Instructions at or after a stalled worker's slot that signal `event`: they have not run.
std::string missing_signallers(const KernelPlan& plan, const StallReport& report, uint32_t event) {
  constexpr uint32_t kShown = 4;
  std::string text;
  uint32_t found = 0;
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    if (report.workers[w].phase == WorkerPhase::kDone) continue;
    for (uint32_t s = report.workers[w].slot; s < plan.queue_depth; ++s) {
      const abi::Instruction& i = plan.instruction(w, s);
      for (uint32_t k = 0; k < abi::num_signals(i); ++k) {
        if (i.signals[k].event != event) continue;
        if (++found <= kShown) text += (text.empty() ? "" : ", ") + instruction_label(plan, w, s);
      }
    }
  }
  if (found == 0) return "no instruction is left that would signal it";
  if (found > kShown) text += fmt::format(" and {} more", found - kShown);
  return "still to be signalled by " + text;
}

std::string worker_line(const KernelPlan& plan, const StallReport& report, uint32_t w) {
  const StalledWorker& s = report.workers[w];
  if (s.phase == WorkerPhase::kDone) return fmt::format("worker {}: finished", w);
  if (s.slot >= plan.queue_depth) return fmt::format("worker {}: leaving", w);
  if (s.phase == WorkerPhase::kRunning) return fmt::format("worker {}: runs {}", w, instruction_label(plan, w, s.slot));
  if (s.phase == WorkerPhase::kIdle) return fmt::format("worker {}: not started", w);
  const abi::Wait& wait = plan.instruction(w, s.slot).waits[s.wait_idx % abi::kMaxWaits];
  return fmt::format("worker {}: {} waits for event {} of {}: expects {}, has {}; {}", w,
                     instruction_label(plan, w, s.slot), wait.event, producer_name(plan, wait.event), wait.threshold,
                     s.actual, missing_signallers(plan, report, wait.event));
}

}  // namespace

Error stall_error(const KernelPlan& plan, const StallReport& report, bool proved, std::chrono::milliseconds timeout) {
  Error error;
  error.code = proved ? ErrorCode::kDeadlock : ErrorCode::kTimeout;
  std::string first;
  uint32_t waiting = 0;
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    const bool waits = report.workers[w].phase == WorkerPhase::kWaiting;
    waiting += waits ? 1 : 0;
    if (waits && first.empty()) first = worker_line(plan, report, w);
    error.details += worker_line(plan, report, w) + "\n";
  }
  const std::string head = proved ? std::string("deadlock: every unfinished worker waits")
                                  : fmt::format("time-out: no progress for {} ms", timeout.count());
  error.message = fmt::format("{} ({} of {} workers wait){}{}", head, waiting, plan.num_workers,
                              first.empty() ? "" : "; first: ", first);
  return error;
}

}  // namespace megartp
