// Runs a generic kernel on the host, thread by thread.
#pragma once

#include <functional>

#include "ops/device_kernel.h"

namespace megartp::test {

using TensorAddress = std::function<void*(TensorId)>;
// False when the kernel is none of the generic ones.
bool emulate_kernel(const DeviceKernel& kernel, const TensorAddress& address_of);

}  // namespace megartp::test
