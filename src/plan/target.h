// TargetDesc: what a plan is made for. Presets need no device, so any plan can be built anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lowering/lower.h"
#include "megartp/error.h"

namespace megartp {

struct TargetDesc {
  std::string name;          // "h200"
  std::string arch;          // "sm_90a", "cpu"
  uint32_t num_workers = 1;  // SMs times workers_per_sm, or threads
  uint32_t workers_per_sm = 1;
  uint32_t smem_bytes = 0;  // per worker
  uint32_t page_bytes = 16384;
  // SMs, 0 for a CPU.
  uint32_t num_sms() const { return arch == "cpu" ? 0 : num_workers / workers_per_sm; }
  double read_gb_per_s = 0;     // whole chip, measured or specified
  double gflops = 0;            // whole chip, dense FP8
  double task_overhead_us = 0;  // fixed cost of one tile task
  double event_latency_us = 0;  // signal to wait, one way
  double signal_us = 0;         // each further signal of a task
  double contended_add_us = 0;  // each add to a counter that others add to as well
  // (opcode, us): instead of task_overhead_us; ascending.
  std::vector<std::pair<uint32_t, double>> op_overhead_us{};
  double hidden_loads = 0;  // share of a task's loads that come while its worker does something else
  // For the simulator (plan/simulate.h); packers do not look at them yet.
  double worker_gb_per_s = 0;   // what one worker alone can read; 0: its even share of the chip's
  uint32_t prefetch_bytes = 0;  // weights that a worker holds of tasks whose inputs are not there yet
  double launch_us = 0;         // from the start of a run to the first instruction
};

// What lowering's event modes go by, for so many workers (0: the target's own).
EventCosts event_costs(const TargetDesc& target, uint32_t num_workers = 0);

std::span<const TargetDesc> target_presets();  // cpu, h200, h100, b300
Result<TargetDesc> find_target(std::string_view name);
// A GPU as the persistent kernel uses it, whose plans have finalizers that are tasks; a CPU stays what it is.
TargetDesc mega_target(TargetDesc chip);

}  // namespace megartp
