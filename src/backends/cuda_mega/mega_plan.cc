#include "backends/cuda_mega/mega_plan.h"

#include <utility>

namespace megartp {

Result<KernelPlan> build_mega_plan(const OpGraph& graph, const ShapeEnv& shapes, const MegaPlanOptions& options) {
  TargetDesc target = MEGARTP_TRY(find_target(options.target));
  if (options.num_sms != 0) target.num_workers = options.num_sms;
  target = mega_target(std::move(target));
  LowerOptions lowering;
  lowering.finalizer = FinalizerMode::kTasks;
  lowering.events.mode = options.events;
  lowering.events.costs = event_costs(target, options.num_workers);
  lowering.num_sms = target.num_sms();
  const TaskGraph tasks = MEGARTP_TRY(lower(graph, shapes, lowering));
  return pack(tasks, target, {options.packer, options.num_workers});
}

}  // namespace megartp
