// LaunchCosts: what the simulator of launch plans (launch/simulate_launch.h) takes from a target. General figures, none
// of them of one op. Invariant: every rate and size is above zero.
#pragma once

#include <cstdint>
#include <string_view>

#include "launch/launch_plan.h"

namespace megartp {

struct LaunchCosts {
  // An SM, and what a CTA takes of it besides what its description says.
  uint32_t num_sms = 0;
  uint32_t smem_per_sm = 0;
  uint32_t smem_per_cta = 0;  // reserved
  uint32_t threads_per_sm = 0;
  uint32_t ctas_per_sm = 0;

  // Rates: GB/s is bytes a nanosecond.
  double read_gb_per_s = 0;      // of the chip
  double sm_read_gb_per_s = 0;   // of one SM
  double cta_read_gb_per_s = 0;  // of one CTA: what it has in flight over the time of a trip
  double sm_macs_per_ns = 0;     // multiply-adds of one SM
  double cta_macs_per_ns = 0;    // of one CTA

  // Of a launch.
  double frame_us = 0;              // two event records around a graph of one empty kernel
  double full_edge_us = 0;          // producers complete -> the consumer's first CTA
  double programmatic_edge_us = 0;  // the last CTA has triggered -> the consumer's first CTA
  double complete_us = 0;           // the last CTA's end -> its stores are out, the kernel is complete
  double wake_us = 0;               // producers complete -> the wait inside their consumers returns

  // Of a CTA.
  double start_us = 0;    // entry -> it can wait or read: barriers, descriptors
  double trip_us = 0;     // inputs ready -> the first of them is there
  double finish_us = 0;   // the last product -> the end: reductions, stores
  double cluster_us = 0;  // sums that meet in a cluster
};

// Of the targets with device code: h200 as measured, others with their own rates and an h200's latencies.
// kInvalidArgument for a target that launches no kernels.
Result<LaunchCosts> find_launch_costs(std::string_view target);
// What launch plans for the target are cut for.
DeviceTarget device_target(const LaunchCosts& costs);

}  // namespace megartp
