// Records of single CTAs -> Trace, for the backends that run kernels in a CUDA graph.
//
// A lane is an SM; where CTAs share an SM, it has as many lanes as it held at once. An op is a kernel, a task a CTA.
// The event "A0 done" is the completion of a kernel: its CTAs signal it, those of the kernels behind it wait.
#pragma once

#include <span>

#include "backends/raw_trace.h"
#include "launch/launch_plan.h"
#include "trace/trace.h"

namespace megartp::trace {

// Of `meta` the caller sets name, machine and rates. kInvalidArgument when a record names what the plan has not, comes
// twice, or its clocks run backwards.
Result<Trace> trace_of_launch(const LaunchPlan& plan, const RawTrace& raw, TraceMeta meta);

// What device/frame.cuh writes under MEGARTP_TRACE, one record a CTA.
struct FrameTraceRecord {
  uint64_t enter, inputs, done;
  uint64_t marks[6];
  uint32_t signature;  // CTAs * 100000 + threads * 10 + CTAs of a cluster along x: all that it knows of its kernel
  uint32_t cta;        // blockIdx.x
  uint32_t sm, pad;
};
// One replay's records, with kernels told from their signatures and CTAs of one blockIdx.x numbered in their order.
// kInvalidArgument for a signature that no kernel has, or that two have.
Result<std::vector<abi::CtaTraceRecord>> ctas_of_frame_records(const LaunchPlan& plan,
                                                               std::span<const FrameTraceRecord> records);

}  // namespace megartp::trace
