// What the watchdog saw of a run that makes no progress, and the error and fault records that it becomes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backends/cpu_threads/plan_runtime.h"
#include "backends/cpu_threads/thread_team.h"
#include "backends/cpu_threads/worker_state.h"
#include "megartp/error.h"
#include "plan/fault_dump.h"

namespace megartp {

struct StalledWorker {
  WorkerPhase phase = WorkerPhase::kIdle;
  uint32_t slot = 0;
  uint32_t task = abi::kNoTask;
  uint32_t wait_idx = 0;
  uint64_t actual = 0;  // count of the awaited event in this run
};

// A task that the dynamic scheduler has yet to release.
struct HeldTask {
  uint32_t task = 0;
  uint32_t wait_idx = 0;
  uint64_t actual = 0;
};

// One look at all workers. A look is no snapshot, but a worker never comes back to a (slot, wait) that it left: two
// looks that are equal mean that nobody moved from the end of the first to the start of the second.
struct StallReport {
  std::vector<StalledWorker> workers;
  std::vector<HeldTask> held;
  uint64_t activity = 0;     // grows with everything that schedulers and workers do
  bool all_waiting = false;  // somebody waits, and everything unfinished waits for an event that is not reached
  bool any_running = false;  // a tile is being computed, so the run is not stuck, however long it takes

  bool same_places(const StallReport& other) const;
};

// Fills `workers`, all_waiting and any_running from the states. A run whose work is done is not stuck, however long its
// threads take to leave.
StallReport look_at(const PlanRuntime& runtime, std::span<const WorkerState> states);

// The same for the dynamic scheduler, under which a task that waits need not be at a worker: what counts are the tasks
// of `order` (all of the plan). `held` gets the first of those that wait and are at no worker.
StallReport look_at_tasks(const PlanRuntime& runtime, std::span<const WorkerState> states,
                          std::span<const uint32_t> order);

// A run that was given up: kDeadlock (`proved`: nobody is left who could signal) or kTimeout, and where everybody
// stood. The message names the first stuck instruction; details has a line a worker: instruction, event, expected and
// actual count, and which instructions have yet to signal that event; and the cause.
struct Stall {
  Error error;
  FaultDump dump;
};
Stall describe_stall(const PlanRuntime& runtime, const StallReport& report, bool proved);

// Waits until the team's round is over. When two looks agree that nobody can go on, or nothing moves for the time-out:
// calls `abort`, waits for the round to end and gives the stall.
Result<void> watch(ThreadTeam& team, const PlanRuntime& runtime, const std::function<StallReport()>& look,
                   const std::function<void()>& abort, FaultDump& dump);

}  // namespace megartp
