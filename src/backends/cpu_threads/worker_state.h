// What a worker of cpu-threads tells the watchdog: where it is and what it waits for.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "abi/instruction.h"

namespace megartp {

enum class WorkerPhase : uint32_t { kIdle, kWaiting, kRunning, kDone };

// All relaxed: the watchdog only looks, and judges a deadlock from two looks that agree.
struct alignas(64) WorkerState {
  std::atomic<WorkerPhase> phase{WorkerPhase::kIdle};
  std::atomic<uint32_t> slot{0};             // of the queue; under the dynamic scheduler, tasks run so far
  std::atomic<uint32_t> task{abi::kNoTask};  // being waited for or run
  std::atomic<uint32_t> wait_idx{0};         // which of its waits
};

// What each worker did, by operand row.
struct alignas(64) WorkerStats {
  std::vector<uint32_t> tasks;
  std::vector<double> busy_ns;
  void reset(size_t rows) {
    tasks.assign(rows, 0);
    busy_ns.assign(rows, 0);
  }
};

}  // namespace megartp
