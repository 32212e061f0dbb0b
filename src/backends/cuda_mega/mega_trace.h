// What the persistent kernel recorded of a run -> RawTrace.
//
// A worker's loader may see the events of an instruction complete while its consumers are still at the one before: then
// the instruction was there (visible) when its events were, and began (ready) when the consumers came to it.
#pragma once

#include <span>

#include "abi/mega.h"
#include "backends/raw_trace.h"
#include "plan/kernel_plan.h"

namespace megartp::cuda_mega {

// `records`: [workers, depth], as MegaExecutable::trace() has them. Instructions without a record are lost.
// kInvalidArgument when there are not so many, or none has a time.
Result<RawTrace> raw_trace(const KernelPlan& plan, std::span<const abi::MegaTraceRecord> records);

}  // namespace megartp::cuda_mega
