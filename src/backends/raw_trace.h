// RawTrace: what a backend recorded of one run, as it came. A backend hands over arrays of plain records and says what
// their clock is; everything else (names, dependencies, times from the begin) is added by src/trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/trace_record.h"

namespace megartp {

struct RawTrace {
  std::string clock_domain;                 // "steady_clock", "globaltimer"
  double ns_per_tick = 1;                   // of every clock below
  double resolution_ns = 1;                 // smallest step that the clock makes
  uint64_t begin = 0;                       // when the run was started, in ticks
  uint64_t end = 0;                         // when all of it was over
  uint64_t num_lost = 0;                    // records for which there was no room
  std::vector<abi::TraceRecord> tasks;      // of plans
  std::vector<abi::TraceRoleRecord> roles;  // of plans, optional
  std::vector<abi::CtaTraceRecord> ctas;    // of launch plans
};

}  // namespace megartp
