#include "backends/cpu_threads/threads_executable.h"

#include <algorithm>
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

Status ThreadsExecutable::record_trace(uint32_t records_per_worker) {
  std::vector<TraceLog> logs;
  try {
    if (records_per_worker != 0) logs.assign(plan().num_workers, TraceLog(records_per_worker));
  } catch (const std::exception& e) {
    return make_error(ErrorCode::kOutOfResources, "cpu-threads: no memory for " + std::to_string(records_per_worker) +
                                                      " trace records a worker: " + e.what());
  }
  logs_ = std::move(logs);
  has_raw_ = false;
  return {};
}

namespace {

// The smallest step between two readings.
double clock_resolution_ns() {
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 64; ++i) {
    const uint64_t before = trace_clock_ns();
    uint64_t after = before;
    while (after == before) after = trace_clock_ns();
    least = std::min(least, after - before);
  }
  return static_cast<double>(least);
}

}  // namespace

void ThreadsExecutable::collect_trace(uint64_t begin_ns, uint64_t end_ns) {
  static const double kResolution = clock_resolution_ns();
  raw_ = {};
  has_raw_ = true;
  raw_.clock_domain = "steady_clock";
  raw_.resolution_ns = kResolution;
  raw_.begin = begin_ns;
  raw_.end = end_ns;
  for (const TraceLog& log : logs_) {
    raw_.num_lost += log.num_lost();
    log.append_to(raw_.tasks);
  }
}

Result<RunStats> ThreadsExecutable::run() {
  dump_ = {};
  MEGARTP_TRY(runtime_.begin());
  for (WorkerStats& s : stats_) s.reset(plan().operand_rows.size());
  for (WorkerState& s : states_) {
    s.slot.store(0, std::memory_order_relaxed);
    s.task.store(abi::kNoTask, std::memory_order_relaxed);
    s.phase.store(WorkerPhase::kIdle, std::memory_order_relaxed);
  }
  abort_.store(false, std::memory_order_relaxed);
  runtime_.take_times(runtime_.options().collect_stats || is_recording());
  for (TraceLog& log : logs_) log.clear();
  has_raw_ = false;
  const uint64_t start_ns = trace_clock_ns();
  if (Status ok = run_round(); !ok) {
    runtime_.start_over();
    return tl::unexpected(std::move(ok).error());
  }
  RunStats result;
  const uint64_t end_ns = trace_clock_ns();
  result.wall_ns = static_cast<double>(end_ns - start_ns);
  if (is_recording()) collect_trace(start_ns, end_ns);
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
