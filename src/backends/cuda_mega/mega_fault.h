// What a run that gave up left behind -> error and fault dump.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "abi/fault_record.h"
#include "plan/fault_dump.h"

namespace megartp::cuda_mega {

struct MegaFault {
  Error error;  // kDeadlock: everybody who gave up waited for an event; kTimeout: something else took too long
  FaultDump dump;
};

// `records`: one a worker, kind 0 where the worker wrote none; nothing in them is trusted. `epochs`: runs that each
// worker has finished since the counters were reset.
MegaFault describe_fault(const KernelPlan& plan, std::span<const abi::FaultRecord> records,
                         std::span<const uint64_t> epochs, std::chrono::milliseconds deadline);

}  // namespace megartp::cuda_mega
