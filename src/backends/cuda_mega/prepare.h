// A kernel plan on this machine's GPU, behind the interface that the CPU backends have.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cuda_mega/mega_executable.h"
#include "codegen/compile_kernels.h"

namespace megartp {

struct CudaMegaOptions {
  int device = 0;
  cuda_mega::MegaRunOptions run;
  codegen::CompileOptions compile;
};

// On the driver of this machine. kUnsupported where there is none, no NVRTC, no such device, or no device op for one of
// the plan's opcodes.
Result<std::unique_ptr<Executable>> prepare_cuda_mega(std::shared_ptr<const KernelPlan> plan,
                                                      const CudaMegaOptions& options = {});

}  // namespace megartp
