#include "cli/run_explore.h"

#include <iostream>

#include "backends/cpu_threads/explore.h"

namespace megartp::cli {
namespace {

Json to_json(const ExploreReport& report, const KernelPlan& plan) {
  Json j;
  j["tasks"] = plan.num_tasks;
  j["workers"] = plan.num_workers;
  j["executions"] = report.num_executions;
  j["complete"] = report.is_complete;
  j["deadlocks"] = report.num_deadlocks;
  j["different"] = report.num_different;
  j["findings"] = report.findings;
  j["races"] = Json::array();
  for (const ExploreRace& race : report.races)
    j["races"].push_back({{"writer", race.writer}, {"other", race.other}, {"both_write", race.both_write}});
  return j;
}

}  // namespace

int explore_layer(const glm52::LayerRun& run, std::shared_ptr<const KernelPlan> plan, uint64_t max_executions,
                  const std::string& fault_dump, const CommonOptions& common) {
  auto explorer = value_or_exit(prepare_explorer(plan, {max_executions}), common, "run");
  // At full size each execution takes a second or so, and nothing is printed before the end.
  constexpr uint64_t kManyTiles = 200000;
  if (!common.quiet && max_executions > kManyTiles / plan->num_tasks)
    std::cerr << "note: up to " << max_executions << " executions of " << plan->num_tasks
              << " tasks each; --max-executions bounds them, a smaller --m and --kv make each of them quicker\n";
  const Explorer& kept = *explorer;
  auto execution = value_or_exit(glm52::LayerExecution::create(run, std::move(explorer)), common, "run");
  value_or_exit(execution.run(), common, "run");
  const ExploreReport& report = kept.report();
  if (!fault_dump.empty() && kept.fault() != nullptr)
    value_or_exit(save_fault_dump(*kept.fault(), fault_dump), common, "run");
  if (common.json) {
    print_json("run", Json{{"explore", to_json(report, *plan)}});
  } else {
    std::cout << describe(report) << "\n";
    for (const std::string& finding : report.findings) std::cout << "  " << finding << "\n";
    for (const ExploreRace& race : report.races) std::cout << "  " << describe(race, *plan) << "\n";
  }
  if (report.num_deadlocks != 0) return exit_code(ErrorCode::kDeadlock);
  return report.is_clean() ? 0 : exit_code(ErrorCode::kMismatch);
}

}  // namespace megartp::cli
