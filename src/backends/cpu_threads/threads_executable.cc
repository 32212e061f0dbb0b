#include "backends/cpu_threads/threads_executable.h"

#include <exception>
#include <string>

namespace megartp {

Status ThreadsExecutable::make_scratch() {
  try {
    for (uint32_t w = 0; w < plan().num_workers; ++w) scratch_.emplace_back(kCpuScratchBytes);
  } catch (const std::exception& e) {
    return make_error(ErrorCode::kOutOfResources, "cpu-threads: no scratch memory for worker " +
                                                      std::to_string(scratch_.size()) + " of " +
                                                      std::to_string(plan().num_workers) + ": " + e.what());
  }
  return {};
}

Result<RunStats> ThreadsExecutable::run() {
  using Clock = std::chrono::steady_clock;
  dump_ = {};
  MEGARTP_TRY(runtime_.begin());
  for (WorkerStats& s : stats_) s.reset(plan().operand_rows.size());
  for (WorkerState& s : states_) {
    s.slot.store(0, std::memory_order_relaxed);
    s.task.store(abi::kNoTask, std::memory_order_relaxed);
    s.phase.store(WorkerPhase::kIdle, std::memory_order_relaxed);
  }
  abort_.store(false, std::memory_order_relaxed);
  const auto start = Clock::now();
  if (Status ok = run_round(); !ok) {
    runtime_.start_over();
    return tl::unexpected(std::move(ok).error());
  }
  RunStats result;
  result.wall_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  for (size_t r = 0; r < plan().operand_rows.size(); ++r) {
    StageStats s{plan().operand_rows[r].name, 0, 0};
    for (const WorkerStats& w : stats_) {
      s.num_tasks += w.tasks[r];
      s.busy_ns += w.busy_ns[r];
    }
    result.stages.push_back(std::move(s));
  }
  return result;
}

}  // namespace megartp
