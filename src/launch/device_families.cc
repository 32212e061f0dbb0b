// No family has device code yet.
#include "ops/device_kernel.h"

namespace megartp {

const DeviceFamily* find_device_family(std::string_view /*kind*/) { return nullptr; }

}  // namespace megartp
