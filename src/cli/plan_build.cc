#include "cli/plan_build.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"

namespace megartp::cli {

Result<TargetDesc> target_of(const PlanOptions& options) {
  TargetDesc target = MEGARTP_TRY(find_target(options.target));
  if (options.num_sms != 0) target.num_workers = options.num_sms;
  return options.finalizer == "tasks" ? mega_target(std::move(target)) : target;
}

std::string graph_hash(const OpGraph& graph) { return hash128(to_json(graph)).hex(); }

Result<LowerOptions> lower_options(const PlanOptions& options) {
  LowerOptions out;
  out.finalizer = options.finalizer == "tasks" ? FinalizerMode::kTasks : FinalizerMode::kFused;
  out.events.mode = MEGARTP_TRY(parse_event_mode(options.events));
  const TargetDesc target = MEGARTP_TRY(target_of(options));
  out.events.costs = event_costs(target, options.workers);
  // For the persistent kernel, whose finalizers are tasks: of the whole chip, however many workers there are, because
  // the bits are those of launch plans.
  if (out.finalizer == FinalizerMode::kTasks) out.num_sms = target.num_sms();
  return out;
}

Result<BuiltPlan> build_plan(const OpGraph& graph, const ShapeEnv& shapes, const PlanOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto ns = [](Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double, std::nano>(b - a).count();
  };
  const TargetDesc target = MEGARTP_TRY(target_of(options));
  PackOptions pack_options;
  pack_options.packer = MEGARTP_TRY(parse_packer(options.packer));
  pack_options.num_workers = options.workers;
  const LowerOptions lowering = MEGARTP_TRY(lower_options(options));
  const auto start = Clock::now();
  auto tasks = std::make_shared<const TaskGraph>(MEGARTP_TRY(lower(graph, shapes, lowering)));
  const auto lowered = Clock::now();
  BuiltPlan built;
  auto plan = std::make_shared<KernelPlan>(MEGARTP_TRY(pack(*tasks, target, pack_options)));
  built.lower_ns = ns(start, lowered);
  built.pack_ns = ns(lowered, Clock::now());
  built.how = fmt::format("lowered in {:.0f} us, packed in {:.0f} us", built.lower_ns / 1e3, built.pack_ns / 1e3);
  plan->graph_hash = graph_hash(graph);
  built.tasks = std::move(tasks);
  built.plan = std::move(plan);
  return built;
}

}  // namespace megartp::cli
