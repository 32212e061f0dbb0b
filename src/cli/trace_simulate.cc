// megartp trace simulate: how long a plan takes on a target, told from bytes, rates and event costs, with no device.
#include <iostream>

#include <fmt/format.h>

#include "cli/plan_build.h"
#include "cli/trace.h"
#include "trace/from_plan.h"

namespace megartp::cli {
namespace {

struct SimulateArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  PlanOptions plan;
  int64_t num_layers = 1;
  std::string output;
};

Result<trace::AnalysedTrace> simulate_plan(const SimulateArgs& a) {
  const Model model = MEGARTP_TRY(load_model(a.model));
  const OpGraph graph = glm52::attention_pre_graph(model.config, model.options, a.model.layer, a.num_layers);
  const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()));
  const BuiltPlan built = MEGARTP_TRY(build_plan(graph, shapes, a.plan));
  const std::vector<TaskCost> costs = task_costs(*built.tasks);
  const TargetDesc target = MEGARTP_TRY(find_target(a.plan.target));
  const SimResult result =
      MEGARTP_TRY(simulate(make_sim_program(*built.plan, costs), sim_costs(target, built.plan->num_workers)));
  trace::AnalysedTrace t;
  t.trace = MEGARTP_TRY(trace::trace_of_simulation(*built.plan, costs, result));
  t.analysis = trace::analyse(t.trace);
  return t;
}

int run_simulate(const SimulateArgs& a) {
  constexpr std::string_view kName = "trace-simulate";
  const trace::AnalysedTrace t = value_or_exit(simulate_plan(a), a.common, kName);
  if (!a.output.empty()) value_or_exit(save_trace(t.trace, a.output), a.common, kName);
  uint64_t bytes = 0;
  for (const trace::TraceTask& task : t.trace.tasks) bytes += task.weight_bytes + task.other_bytes;
  const double least_us =
      t.trace.meta.read_gb_per_s > 0 ? static_cast<double>(bytes) / t.trace.meta.read_gb_per_s / 1e3 : 0;
  if (a.common.json) {
    Json j = trace_summary_json(t);
    j["bytes"] = bytes;
    j["least_ns"] = least_us * 1e3;
    return print_json(kName, std::move(j));
  }
  if (a.common.quiet) return 0;
  std::cout << fmt::format("{}: {}\n", a.plan.target, trace_summary_line(t));
  std::cout << fmt::format("{:.1f} MB, which the target reads in {:.1f} us\n", static_cast<double>(bytes) / 1e6,
                           least_us);
  return 0;
}

}  // namespace

Command add_trace_simulate_command(CLI::App& trace) {
  auto args = std::make_shared<SimulateArgs>();
  SimulateArgs& a = *args;
  CLI::App* app = trace.add_subcommand("simulate", "Predict a plan's run on a target; needs no device");
  add_common_options(*app, a.common);
  add_model_options(*app, a.model);
  add_batch_options(*app, a.batch);
  add_plan_options(*app, a.plan, "h200");
  app->add_option("--layers", a.num_layers, "Consecutive layers")->check(CLI::Range(1, 1000))->capture_default_str();
  app->add_option("-o,--output", a.output, "Write the simulated run as a trace file");
  app->footer(
      "Example:\n  megartp trace simulate glm52-attention-pre --target b300 -o b300.trace && megartp trace show "
      "b300.trace");
  return {app, [args] { return run_simulate(*args); }};
}

}  // namespace megartp::cli
