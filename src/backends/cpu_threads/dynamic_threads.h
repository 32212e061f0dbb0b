// cpu-threads with the in-kernel dynamic scheduler.
//
//   scheduler --- ahead ring ----> worker     one of each per worker: tasks handed out at the start of the run; the
//   scheduler --- ready ring ----> worker     worker looks at their events, at most kLookAhead of them at a time
//   worker ------ milestone ring -> scheduler one per scheduler: "this event has reached what somebody waits for"
//   worker ------ broadcast ring -> all       the same, where many wait: each scheduler releases a slice
//
// No writer overwrites: a worker waits for room in a milestone ring, and schedulers, who never wait for room, keep what
// does not fit. Hence schedulers always drain, workers always get on, and the first task in dependency order that is
// not done is either in a ready ring (such tasks wait for nothing) or the first of some worker's ahead ring.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu_threads/threads_executable.h"

namespace megartp {

inline constexpr uint32_t kLookAhead = 4;

// The plan must have passed check_plan.
Result<std::unique_ptr<Executable>> prepare_dynamic_threads(std::shared_ptr<const KernelPlan> plan,
                                                            const CpuThreadsOptions& options);

}  // namespace megartp
