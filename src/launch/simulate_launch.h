// A discrete-event simulator of launch plans: when each CTA of each kernel would run on a target, told from grids,
// bytes, arithmetic and edges, with no device.
//
//   edge --launch--> CTAs wait for room --enter--> start --[weights]--> inputs ready --trip--> products --finish-->
//   done
//
// A kernel is launched when its in-edges let it: full_edge_us after its producers are complete, programmatic_edge_us
// after all their CTAs have triggered. Its CTAs go to the SM with the most room, urgent kernels first. A CTA reads
// weights before its inputs are ready as far as its wait's level and its shared memory go, and everything else after.
// What is read at a moment shares the chip's rate, with a bound for an SM and for a CTA; products share an SM's. One
// fixed sequence of floating-point operations: the same input gives the same times everywhere.
//
// Not in it: caches (each byte counts once, as read from memory), clusters' need for neighbouring SMs, instruction
// fetches, what ops do beyond bytes and multiply-adds.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/kernel_trace.h"
#include "launch/launch_costs.h"
#include "launch/launch_plan.h"

namespace megartp {

// What a CTA did when, besides its record.
struct LaunchSimPart {
  uint32_t kernel = 0, cta = 0;
  bool is_read = false;  // bytes came; else products
  uint64_t begin_ns = 0, end_ns = 0;
};
struct LaunchSimResult {
  uint64_t span_ns = 0;                         // first CTA's entry to last one's end
  double timed_us = 0;                          // between two event records around the launch
  std::vector<abi::KernelTraceRecord> records;  // a region for each kernel of the plan, one record a CTA
  std::vector<LaunchSimPart> parts;
};

// kOutOfResources for a kernel of which no CTA, or no cluster, fits the target.
Result<LaunchSimResult> simulate_launch(const LaunchPlan& plan, const LaunchCosts& costs);

}  // namespace megartp
