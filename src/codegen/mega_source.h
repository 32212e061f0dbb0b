// The persistent kernel's code for a set of ops. Neither shapes nor queues are in it: every plan with these ops runs
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/kernel_source.h"
#include "plan/kernel_plan.h"

namespace megartp::codegen {

// The opcodes of a plan's instructions, sorted; padding apart. Relays are always there: whether a plan has some depends
// on its shapes.
std::vector<uint32_t> mega_opcodes(const KernelPlan& plan);

// kUnsupported naming the opcodes that have no device op. `opcodes`: sorted, distinct.
Result<KernelRequest> mega_kernel_request(std::span<const uint32_t> opcodes);

}  // namespace megartp::codegen
