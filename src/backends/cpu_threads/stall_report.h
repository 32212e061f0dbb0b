// What the watchdog saw of a run that makes no progress, and the error that it becomes.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "backends/cpu_threads/worker_state.h"
#include "megartp/error.h"
#include "plan/kernel_plan.h"

namespace megartp {

struct StalledWorker {
  WorkerPhase phase = WorkerPhase::kIdle;
  uint32_t slot = 0;
  uint32_t wait_idx = 0;
  uint64_t actual = 0;  // count of the awaited event in this run
};

// One look at all workers. A look is no snapshot, but a worker never comes back to a (slot, wait) that it left: two
// looks that are equal mean that nobody moved from the end of the first to the start of the second.
struct StallReport {
  std::vector<StalledWorker> workers;
  bool all_waiting = false;  // every unfinished worker waits for an event that is not reached
  bool any_running = false;  // a tile is being computed, so the run is not stuck, however long it takes

  bool same_places(const StallReport& other) const;
};

// kDeadlock (`proved`: nobody is left who could signal) or kTimeout. The message names the first stuck instruction;
// details has a line a worker: instruction, event, expected and actual count, and which instructions have yet to signal
// that event.
Error stall_error(const KernelPlan& plan, const StallReport& report, bool proved, std::chrono::milliseconds timeout);

}  // namespace megartp
