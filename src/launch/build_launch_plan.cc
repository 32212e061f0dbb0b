#include "launch/launch_passes.h"
#include "launch/launch_plan.h"

namespace megartp {

Result<LaunchPlan> build_launch_plan(const OpGraph& graph, const ShapeEnv& shapes, const LaunchOptions& options) {
  MEGARTP_TRY(graph.status());
  LaunchPlan plan;
  plan.name = graph.name();
  plan.mode = options.mode;
  plan.target = options.target;
  plan.shapes = shapes;
  MEGARTP_TRY(launching::collect_kernels(graph, shapes, options, plan));
  launching::estimate_costs(plan);
  plan.edges = launching::true_edges(plan);
  if (options.mode == LaunchMode::kSerial || options.mode == LaunchMode::kPdl)
    plan.edges = launching::chain_edges(plan, plan.edges);
  MEGARTP_TRY(launching::decide_edges(options, plan));
  return plan;
}

}  // namespace megartp
