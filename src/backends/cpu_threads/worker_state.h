// What a worker of cpu-threads tells the watchdog: where it is and what it waits for.
#pragma once

#include <atomic>
#include <cstdint>

namespace megartp {

enum class WorkerPhase : uint32_t { kIdle, kWaiting, kRunning, kDone };

// All relaxed: the watchdog only looks, and judges a deadlock from two looks that agree.
struct alignas(64) WorkerState {
  std::atomic<WorkerPhase> phase{WorkerPhase::kIdle};
  std::atomic<uint32_t> slot{0};      // instruction being waited for or run
  std::atomic<uint32_t> wait_idx{0};  // which of its waits
};

}  // namespace megartp
