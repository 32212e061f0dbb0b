// megartp plan --format mpk: the task graph in the JSON shape of MPK's compiler.
#include <iostream>

#include <fmt/format.h>

#include "cli/plan_build.h"
#include "cli/plan_views.h"
#include "plan/mpk_json.h"

namespace megartp::cli {

int export_mpk(const OpGraph& graph, const ShapeEnv& shapes, const PlanOptions& plan, const CommonOptions& common,
               const std::string& format, const std::string& output) {
  const bool to_stdout = output.empty() || output == "-";
  if (to_stdout && common.json)
    return print_error(
        Error{ErrorCode::kInvalidArgument, fmt::format("plan: --format {} prints JSON of its own; with --json, give it "
                                                       "a file with -o",
                                                       format)},
        common, "plan");
  LowerOptions options = value_or_exit(lower_options(plan), common, "plan");
  options.events.max_waits = 1;
  options.events.max_signals = 1;
  const TaskGraph tasks = value_or_exit(lower(graph, shapes, options), common, "plan");
  const std::string text = value_or_exit(to_mpk_json(tasks, {.ahead_of_time = format == "mpk"}), common, "plan");
  value_or_exit(write_output(output, text), common, "plan");
  if (to_stdout) return 0;
  uint64_t num_relays = 0;
  for (const TaskStage& stage : tasks.stages) num_relays += is_relay(stage) ? stage.stage->num_tiles : 0;
  if (common.json) {
    Json j;
    j["path"] = output;
    j["format"] = format;
    j["bytes"] = text.size();
    j["tasks"] = tasks.tasks.size();
    j["relay_tasks"] = num_relays;
    j["events"] = tasks.events.size();
    return print_json("plan", std::move(j));
  }
  if (!common.quiet)
    std::cout << fmt::format("{}: {} tasks ({} of them relays) and {} events in MPK's shape, {} bytes\n", output,
                             tasks.tasks.size(), num_relays, tasks.events.size(), text.size());
  return 0;
}

}  // namespace megartp::cli
