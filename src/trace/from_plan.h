// Raw records of a plan's run -> Trace.
//
// A backend only hands over arrays (backends/raw_trace.h); names, tiles, events and costs come from the plan.
#pragma once

#include <span>

#include "backends/raw_trace.h"
#include "plan/simulate.h"
#include "trace/trace.h"

namespace megartp::trace {

// `costs` by task id, or empty. Of `meta` the caller sets name, backend, machine and schedule; under the schedule
// "static" every record must be of the instruction that stands at its place. kInvalidArgument when a record names what
// the plan has not, comes twice, or its clocks run backwards.
Result<Trace> trace_of_plan(const KernelPlan& plan, std::span<const TaskCost> costs, const RawTrace& raw,
                            TraceMeta meta);

// The simulated run of a plan as a trace: backend "simulated".
Result<Trace> trace_of_simulation(const KernelPlan& plan, std::span<const TaskCost> costs, const SimResult& result);

}  // namespace megartp::trace
