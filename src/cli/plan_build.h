// Graph to plan, as run and plan do it.
#pragma once

#include <memory>

#include "cli/cli.h"
#include "lowering/lower.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {

struct BuiltPlan {
  std::shared_ptr<const TaskGraph> tasks;
  std::shared_ptr<const KernelPlan> plan;
  double lower_ns = 0;
  double pack_ns = 0;
  std::string how;  // "lowered in 600 us, packed in 200 us"
};
// Identity of a graph with all its attributes, as stored in plans.
std::string graph_hash(const OpGraph& graph);
// The chip, as plans with such finalizers use it.
Result<TargetDesc> target_of(const PlanOptions& options);
Result<LowerOptions> lower_options(const PlanOptions& options);
Result<BuiltPlan> build_plan(const OpGraph& graph, const ShapeEnv& shapes, const PlanOptions& options);

}  // namespace megartp::cli
