// cpu-threads without the proof, for tests of what stands behind it: the watchdog, explorers of faulty plans. Nothing
// else may use it; prepare_cpu_threads() is the way in.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace megartp {

// The plan must still pass check_plan.
Result<std::unique_ptr<Executable>> prepare_unproved(std::shared_ptr<const KernelPlan> plan,
                                                     const CpuThreadsOptions& options = {});

}  // namespace megartp
