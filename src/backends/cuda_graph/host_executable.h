// A launch plan behind the interface that the CPU backends have: host memory in, host memory out. For checking results,
// not for speed: every run copies arguments and states to the device, and outputs, states and activations back.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cuda_graph/cuda_graph_executable.h"

namespace megartp {

struct CudaGraphOptions {
  int device = 0;
  codegen::CompileOptions compile;
};

// On the driver of this machine. kUnsupported where there is none, no NVRTC, or no such device.
Result<std::unique_ptr<Executable>> prepare_cuda_graph(std::shared_ptr<const LaunchPlan> plan,
                                                       const CudaGraphOptions& options = {});
// Around an executable that nothing is bound to yet. Weights are uploaded when they are bound.
Result<std::unique_ptr<Executable>> make_host_executable(std::unique_ptr<cuda_graph::CudaGraphExecutable> device);

}  // namespace megartp
