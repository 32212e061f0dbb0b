// TensorMapSpec -> what the TMA unit reads.
#pragma once

#include "backends/cuda_common/driver.h"
#include "ops/device_kernel.h"

namespace megartp::cuda {

// kInvalidArgument naming what the TMA unit cannot do.
Result<TensorMap> encode_tensor_map(const DriverApi& api, const TensorMapSpec& spec, DevicePtr address);

}  // namespace megartp::cuda
