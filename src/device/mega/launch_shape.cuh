// What the host launches with is what the kernel is written for.
#pragma once

#include "device/mega/mega_kernel.cuh"

namespace megartp::device {

static_assert(kMegaThreads == abi::kMegaThreads);
static_assert(kMegaSmemBytes <= abi::kMegaSmemBytes);
static_assert(kMegaSlots == abi::kMegaSlots && kMegaPagesInSlots == abi::kMegaPagesInSlots);

}  // namespace megartp::device
