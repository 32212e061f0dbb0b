// Where the members of a kernel's parameter struct lie: what the host packs and the compiler is asked to confirm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/device_kernel.h"

namespace megartp::codegen {

struct ParamLayout {
  std::vector<uint32_t> offsets;  // of each parameter, in order
  uint32_t num_bytes = 0;
  uint32_t alignment = 1;
};

inline constexpr uint32_t kTensorMapBytes = 128;
inline constexpr uint32_t kTensorMapAlignment = 64;

// C rules: each member at the next multiple of its alignment (maps 64, pointers 8, words 4), the whole a multiple of
// the largest one.
ParamLayout param_layout(std::span<const DeviceParam> params);

}  // namespace megartp::codegen
