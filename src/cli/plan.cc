// megartp plan: cuts a graph into tasks, packs them, prints or saves the plan.
#include <algorithm>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/plan_build.h"
#include "cli/plan_compile.h"
#include "cli/plan_from_template.h"
#include "cli/plan_partition.h"
#include "cli/plan_views.h"
#include "plan/plan_json.h"

namespace megartp::cli {
namespace {

struct PlanArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  PlanOptions plan;
  TemplateOptions from_template;
  std::string output;
  std::string format = "plan";
  bool compile = false;
  bool explain = false;
  std::string partition_graph;
  std::string unfit_option;  // given, and without meaning beside --partition-graph
  int64_t num_layers = 1;
};

struct PlanInput {
  OpGraph graph;
  ShapeEnv shapes;
};
Result<PlanInput> make_input(const PlanArgs& a) {
  const Model model = MEGARTP_TRY(load_model(a.model));
  OpGraph graph = glm52::attention_pre_graph(model.config, model.options, a.model.layer, a.num_layers);
  if (!graph.status()) return tl::unexpected(graph.status().error());
  ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()));
  return PlanInput{std::move(graph), std::move(shapes)};
}

// Contradictions that the option parser cannot see.
Status check_args(const PlanArgs& a) {
  if (a.model.model.empty())
    return make_error(ErrorCode::kInvalidArgument, "plan: give a model name or --partition-graph, one of the two");
  if (a.explain && a.output == "-")
    return make_error(ErrorCode::kInvalidArgument, "plan: --explain and -o - would both write to stdout");
  if (a.from_template.is_used() && (a.explain || a.format != "plan"))
    return make_error(ErrorCode::kInvalidArgument,
                      "plan: --explain and --format show a graph that is lowered; a plan out of a template is not");
  return {};
}

void print_summary(const KernelPlan& plan, const BuiltPlan& built) {
  std::map<uint32_t, uint32_t> tasks_per_row;
  uint32_t full = 0;
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < plan.queue_depth; ++s) {
      const abi::Instruction& i = plan.instruction(w, s);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      ++count;
      ++tasks_per_row[i.operand_row];
    }
    full += count == plan.queue_depth ? 1 : 0;
  }
  std::cout << fmt::format("{} for {}: {} tasks, {} events, queues [{}, {}, 32], {} full, operand table [{}, 16]\n",
                           plan.graph_name, plan.target, plan.num_tasks, plan.events.size(), plan.num_workers,
                           plan.queue_depth, full, plan.operand_rows.size());
  std::cout << fmt::format("packer {}, finalizer {}, workspace {} bytes; {}\n\n", plan.packer, plan.finalizer,
                           plan.workspace_bytes, built.how);
  Table table({"op", "opcode", "tasks", "events out"});
  for (uint32_t r = 0; r < plan.operand_rows.size(); ++r) {
    uint32_t events = 0;
    for (const PlanEvent& e : plan.events) events += e.producer_row == r ? 1 : 0;
    table.add_row({plan.operand_rows[r].name, std::string(opcode_name(plan.operand_rows[r].opcode)),
                   std::to_string(tasks_per_row[r]), std::to_string(events)});
  }
  std::cout << table.to_string();
}

int run_plan(const PlanArgs& a) {
  if (!a.partition_graph.empty()) {
    if (!a.unfit_option.empty())
      return print_error(
          Error{ErrorCode::kInvalidArgument,
                fmt::format("plan: --partition-graph describes the whole graph; {} goes without it", a.unfit_option)},
          a.common, "plan");
    return run_plan_partition(a.partition_graph, a.plan.events, a.common);
  }
  value_or_exit(check_args(a), a.common, "plan");
  const PlanInput input = value_or_exit(make_input(a), a.common, "plan");
  if (a.format != "plan") return export_mpk(input.graph, input.shapes, a.plan, a.common, a.format, a.output);
  const BuiltPlan built =
      value_or_exit(a.from_template.is_used() ? build_plan_from_template(input.graph, a.batch, a.plan, a.from_template)
                                              : build_plan(input.graph, input.shapes, a.plan),
                    a.common, "plan");
  if (a.compile) return compile_mega(*built.plan, a.common);
  if (a.output == "-") {
    value_or_exit(write_output("-", serialize_plan(*built.plan)), a.common, "plan");
    return 0;
  }
  if (!a.output.empty()) value_or_exit(save_plan(*built.plan, a.output), a.common, "plan");
  if (a.common.json) {
    Json result = Json::parse(plan_to_json(*built.plan));
    if (a.explain) result["explain"] = explain_json(*built.tasks);
    return print_json("plan", std::move(result));
  }
  if (!a.common.quiet) print_summary(*built.plan, built);
  if (a.explain) std::cout << (a.common.quiet ? "" : "\n") << explain_text(*built.tasks);
  return 0;
}

// The first option on the command line that makes no sense beside --partition-graph.
std::string find_unfit_option(const CLI::App& app) {
  constexpr std::string_view kFit[] = {"partition-graph", "events",      "json",  "quiet",
                                       "verbose",         "no-progress", "color", "help"};
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (option->count() == 0) continue;
    if (names.empty()) return "a model name";
    if (std::ranges::find(kFit, names[0]) == std::end(kFit)) return "--" + names[0];
  }
  return {};
}

}  // namespace

Command add_plan_command(CLI::App& root) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* app = root.add_subcommand("plan", "Cut a graph into tile tasks and pack them into worker queues");
  add_common_options(*app, args->common);
  add_model_options(*app, args->model);
  app->get_option("model")->required(false);  // `plan diff` and --partition-graph take none
  add_batch_options(*app, args->batch);
  add_plan_options(*app, args->plan, "h200");
  add_template_options(*app, args->from_template);
  app->add_option("--layers", args->num_layers, "Consecutive layers in one graph")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app->add_option("--partition-graph", args->partition_graph,
                  "Tasks and events of an abstract graph in this JSON file (- is stdin) instead of a model's plan");
  app->add_option("-o,--output", args->output, "Save the plan to this file; - writes it to stdout and nothing else");
  CLI::Option* format = app->add_option("--format", args->format,
                                        "plan; mpk: MPK's JSON of the same graph, mpk-launch: before its ahead-of-time "
                                        "rewrite")
                            ->check(CLI::IsMember({"plan", "mpk", "mpk-launch"}))
                            ->capture_default_str();
  app->add_flag("--explain", args->explain, "Say for every edge what its consumers wait for, and how finely")
      ->excludes(format);
  app->add_flag(
      "--compile", args->compile,
      "Compile the persistent kernel for the plan (--finalizer tasks) and say what it takes; exit code 1 on spills");
  app->footer(
      "Examples:\n"
      "  megartp plan glm52-attention-pre --target b300 --packer round-robin\n"
      "  megartp plan glm52-attention-pre --m 33 --kv 2049 --requests 3 -o layer.plan\n"
      "  megartp plan glm52-attention-pre --explain\n"
      "  megartp plan --partition-graph graph.json --events gcd --json");
  return {app, [args, app] {
            args->unfit_option = find_unfit_option(*app);
            return run_plan(*args);
          }};
}

}  // namespace megartp::cli
