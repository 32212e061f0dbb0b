// Records of single CTAs -> Trace, for the backends that run kernels in a CUDA graph.
//
// A lane is an SM; where CTAs share an SM, it has as many lanes as it held at once. An op is a kernel, a task a CTA.
// The event "A0 done" is the completion of a kernel: its CTAs signal it, those of the kernels behind it wait.
#pragma once

#include "backends/raw_trace.h"
#include "launch/launch_plan.h"
#include "launch/simulate_launch.h"
#include "trace/trace.h"

namespace megartp::trace {

// Of `meta` the caller sets name, machine, target and rates. kInvalidArgument when the records are not those of the
// plan's CTAs or their clocks run backwards.
Result<Trace> trace_of_launch(const LaunchPlan& plan, const RawTrace& raw, TraceMeta meta);

// The simulated run of a plan as a trace: backend "simulated".
Result<Trace> trace_of_simulation(const LaunchPlan& plan, const LaunchSimResult& result, TraceMeta meta);

}  // namespace megartp::trace
