// RawTrace: what a backend recorded of one run, as it came. A backend hands over arrays of plain records and says what
// their clock is; everything else (names, dependencies, times from the begin) is added by src/trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/kernel_trace.h"
#include "abi/trace_record.h"

namespace megartp {

struct RawTrace {
  std::string clock_domain;             // "steady_clock", "%globaltimer"
  double ns_per_tick = 1;               // of every clock below
  double resolution_ns = 1;             // smallest step that the clock makes
  uint64_t begin = 0;                   // when the run was started, in ticks; on a GPU, when its first CTA entered
  uint64_t end = 0;                     // when all of it was over
  uint64_t num_lost = 0;                // records for which there was no room
  std::vector<abi::TraceRecord> tasks;  // of plans
  // Optional. Of launch plans the worker is the kernel, the slot its CTA.
  std::vector<abi::TraceRoleRecord> roles;
  // Of launch plans: a region for each kernel, in the plan's order, with a record for each CTA. done 0: lost.
  std::vector<abi::KernelTraceRecord> ctas;
};

}  // namespace megartp
