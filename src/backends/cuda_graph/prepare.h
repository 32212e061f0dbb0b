// A launch plan behind the interface that the CPU backends have.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "codegen/compile_kernels.h"
#include "launch/launch_plan.h"

namespace megartp {

struct CudaGraphOptions {
  int device = 0;
  codegen::CompileOptions compile;
};

// On the driver of this machine. kUnsupported where there is none, no NVRTC, or no such device.
Result<std::unique_ptr<Executable>> prepare_cuda_graph(std::shared_ptr<const LaunchPlan> plan,
                                                       const CudaGraphOptions& options = {});

}  // namespace megartp
