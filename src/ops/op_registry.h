// The list that the build generates; use op_families() and friends from op_family.h.
#pragma once

#include <vector>

#include "ops/device_kernel.h"
#include "ops/mega_op.h"
#include "ops/op_family.h"

namespace megartp {
std::vector<const OpFamily*> generated_op_families();
std::vector<const DeviceFamily*> generated_device_families();
std::vector<std::span<const MegaOpInfo>> generated_mega_ops();
}  // namespace megartp
