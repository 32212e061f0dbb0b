// A DeviceExecutable behind the interface that the CPU backends have: host memory in, host memory out. For checking
// results, not for speed: every run copies arguments and states to the device, and outputs, states and activations
// back.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cuda_common/device_executable.h"

namespace megartp {

// Around an executable that nothing is bound to yet. Weights are uploaded when they are bound.
Result<std::unique_ptr<Executable>> make_host_executable(std::unique_ptr<cuda::DeviceExecutable> device);

}  // namespace megartp
