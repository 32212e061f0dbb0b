// Records of single CTAs -> Trace, for the backends that run kernels in a CUDA graph.
//
// A lane is an SM; where CTAs share an SM, it has as many lanes as it held at once. An op is a kernel, a task a CTA.
// The event "A0 done" is the completion of a kernel: its CTAs signal it, those of the kernels behind it wait.
#pragma once

#include "backends/raw_trace.h"
#include "launch/launch_plan.h"
#include "trace/trace.h"

namespace megartp::trace {

// Of `meta` the caller sets name, machine and rates. kInvalidArgument when a record names what the plan has not, comes
// twice, or its clocks run backwards.
Result<Trace> trace_of_launch(const LaunchPlan& plan, const RawTrace& raw, TraceMeta meta);

}  // namespace megartp::trace
