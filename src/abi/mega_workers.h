// How many workers of the persistent kernel share an SM. Apart from abi/mega.h, for those who plan and need no more.
#pragma once

#include <cstdint>

namespace megartp::abi {

// While the consumers of one worker wait for a trip to the memory, those of the other compute.
inline constexpr uint32_t kMegaCtasPerSm = 2;

}  // namespace megartp::abi
