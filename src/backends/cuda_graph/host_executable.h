// A launch plan as an Executable whose tensors are in host memory: for comparisons with the CPU backends, not for
// speed.
//
// Weights are copied to the device when they are bound; arguments and states before every run; outputs and states back
// after it.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "codegen/compile_kernels.h"
#include "launch/launch_plan.h"

namespace megartp {

struct HostLaunchOptions {
  int device = 0;
  codegen::CompileOptions compile;
};
// kUnsupported, with a sentence that says what is missing, on a machine without a GPU, a driver or NVRTC. RunStats of a
// run have the wall time from the launch to the end, and no stages.
Result<std::unique_ptr<Executable>> prepare_cuda_graph(std::shared_ptr<const LaunchPlan> plan,
                                                       const HostLaunchOptions& options = {});

}  // namespace megartp
