// Names that device code and the generated sources share. No op is known here.
#pragma once

#include <cstdint>

namespace megartp::device {

// As megartp::DeviceWait, which documents them.
inline constexpr int kWaitEntry = 0;
inline constexpr int kWaitPrologue = 1;
inline constexpr int kWaitPrefetch = 2;

// A CUtensorMap: 128 opaque bytes that must lie at 64 in parameter space or global memory.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

__host__ __device__ constexpr uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace megartp::device
