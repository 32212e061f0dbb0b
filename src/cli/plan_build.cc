#include "cli/plan_build.h"

#include <chrono>

#include "base/hash.h"

namespace megartp::cli {

std::string graph_hash(const OpGraph& graph) { return hash128(to_json(graph)).hex(); }

Result<BuiltPlan> build_plan(const OpGraph& graph, const ShapeEnv& shapes, const PlanOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto ns = [](Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double, std::nano>(b - a).count();
  };
  LowerOptions lower_options;
  lower_options.finalizer = options.finalizer == "tasks" ? FinalizerMode::kTasks : FinalizerMode::kFused;
  lower_options.events.mode = MEGARTP_TRY(parse_event_mode(options.events));
  const TargetDesc target = MEGARTP_TRY(find_target(options.target));
  PackOptions pack_options;
  pack_options.packer = MEGARTP_TRY(parse_packer(options.packer));
  pack_options.num_workers = options.workers;
  const auto start = Clock::now();
  const TaskGraph tasks = MEGARTP_TRY(lower(graph, shapes, lower_options));
  const auto lowered = Clock::now();
  BuiltPlan built;
  auto plan = std::make_shared<KernelPlan>(MEGARTP_TRY(pack(tasks, target, pack_options)));
  built.lower_ns = ns(start, lowered);
  built.pack_ns = ns(lowered, Clock::now());
  plan->graph_hash = graph_hash(graph);
  built.plan = std::move(plan);
  return built;
}

}  // namespace megartp::cli
