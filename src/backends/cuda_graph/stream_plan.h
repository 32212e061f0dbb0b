// A launch plan as launches on streams with events between them, such that a capture of them has the plan's edges.
//
// What a driver makes of them (measured on an H200, driver 580.159):
//   an event recorded behind a kernel, a stream that waits for it, a launch there      a full edge
//   a kernel launched with a programmatic event, a stream that waits for it, a launch  a programmatic edge
//   a launch with programmatic stream serialisation, right behind one kernel           a programmatic edge
// A launch depends on everything that its stream depends on. So a kernel stays on the stream of a predecessor only when
// the edge from it is full, or is programmatic and the only one; else it gets a fresh stream, which knows nothing yet.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/launch_plan.h"

namespace megartp::cuda_graph {

struct StreamStep {
  uint32_t kernel = 0;
  uint32_t stream = 0;                       // of the side streams
  bool forks = false;                        // waits for what the caller's stream had done at the start
  bool follows_programmatically = false;     // programmatic stream serialisation
  std::vector<uint32_t> full_waits;          // kernels whose events of completion it waits for
  std::vector<uint32_t> programmatic_waits;  // kernels whose programmatic events it waits for
  bool records_completion = false;           // somebody waits for its completion
  bool records_trigger = false;              // somebody waits for its programmatic event
};

struct StreamPlan {
  std::vector<StreamStep> steps;  // in program order
  uint32_t num_streams = 0;
  // All streams are joined to the caller's by full dependencies in the end: a capture with side branches that only
  // programmatic events join counts as unjoined.
};

// kUnsupported for kinds of edges other than full and programmatic.
Result<StreamPlan> plan_streams(uint32_t num_kernels, const std::vector<LaunchEdge>& edges);

}  // namespace megartp::cuda_graph
