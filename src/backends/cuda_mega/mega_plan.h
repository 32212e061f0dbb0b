// Graph -> kernel plan for the persistent kernel.
#pragma once

#include "lowering/lower.h"
#include "plan/kernel_plan.h"

namespace megartp {

struct MegaPlanOptions {
  std::string target = "h200";
  uint32_t num_sms = 0;      // of the device, which decides bits as for launch plans; 0: the target's
  uint32_t num_workers = 0;  // 0: two an SM
  Packer packer = Packer::kInsertion;
  EventMode events = EventMode::kExact;
};

// Finalizers are tasks of their own.
Result<KernelPlan> build_mega_plan(const OpGraph& graph, const ShapeEnv& shapes, const MegaPlanOptions& options = {});

}  // namespace megartp
