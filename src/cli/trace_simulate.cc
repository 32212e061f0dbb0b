// megartp trace simulate: how long a plan or a launch plan takes on a target, told from bytes, rates and event costs,
// with no device.
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "abi/mega.h"
#include "cli/launch_options.h"
#include "cli/plan_build.h"
#include "cli/run_launch.h"
#include "cli/run_mega.h"
#include "cli/trace.h"
#include "launch/simulate_launch.h"
#include "trace/from_kernels.h"
#include "trace/from_plan.h"

namespace megartp::cli {
namespace {

struct SimulateArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  PlanOptions plan;
  LaunchArgs launch;
  std::string backend;  // empty: the plan as `megartp plan` makes it
  int64_t num_layers = 1;
  std::string output;
  std::string against;
  double max_error = 0;
  bool launch_given = false;
  bool packer_given = false;
  bool packing_given = false;  // what launch plans do not have; they do have a target
  bool finalizer_given = false;
};

struct Prediction {
  double predicted_ns = 0, measured_ns = 0;
  bool is_timed = false;  // between event records; else from the first task's begin to the last one's end
  double error() const { return predicted_ns / measured_ns - 1; }
};

Result<trace::Trace> simulate_kernels(const SimulateArgs& a, const OpGraph& graph, const ShapeEnv& shapes) {
  const TargetDesc target = MEGARTP_TRY(find_target(a.plan.target));
  const LaunchCosts costs = MEGARTP_TRY(find_launch_costs(a.plan.target));
  LaunchOptions options = MEGARTP_TRY(to_launch_options(a.launch));
  options.mode = MEGARTP_TRY(parse_launch_mode(a.backend));
  options.target = device_target(costs);
  const LaunchPlan plan = MEGARTP_TRY(build_launch_plan(graph, shapes, options));
  const LaunchSimResult result = MEGARTP_TRY(simulate_launch(plan, costs));
  trace::TraceMeta meta;
  meta.name = fmt::format("{}, {}, simulated", target.name, a.backend);
  meta.machine = meta.target = target.name;
  meta.read_gb_per_s = target.read_gb_per_s;
  meta.gflops = target.gflops;
  return trace::trace_of_simulation(plan, result, std::move(meta));
}

// The persistent kernel, from its traces: the median of what a tile of an op takes from when its inputs are there until
// its results are stored (MegaOpInfo::task_us; the packer knows them by op), and from there, of the last signaller of
// an event, until a loader has seen the event. A worker has one page of weights on its way at a time, and main_q's
// tiles, which are little else, take 1.18 us a page.
void add_mega_costs(SimCosts& costs) {
  costs.task_ns = 2500;
  costs.event_ns = 1700;
  costs.worker_bytes_per_ns = abi::kMegaPageBytes / 1180.0;
}

Result<trace::Trace> simulate_tasks(const SimulateArgs& a, const OpGraph& graph, const ShapeEnv& shapes) {
  PlanOptions options = a.plan;
  if (a.backend == "mega") set_mega_defaults(options, true, a.packer_given, 0);
  const BuiltPlan built = MEGARTP_TRY(build_plan(graph, shapes, options));
  const std::vector<TaskCost> costs = task_costs(*built.tasks);
  const TargetDesc target = MEGARTP_TRY(target_of(options));
  SimCosts sim = sim_costs(target, built.plan->num_workers);
  if (a.backend == "mega") add_mega_costs(sim);
  const SimResult result = MEGARTP_TRY(simulate(make_sim_program(*built.plan, costs), sim));
  trace::Trace trace = MEGARTP_TRY(trace::trace_of_simulation(*built.plan, costs, result));
  // A launch on a GPU is simulated with its event records.
  if (target.num_sms() > 0) trace.meta.timed_ns = static_cast<double>(trace.meta.span_ns);
  return trace;
}

Result<trace::AnalysedTrace> simulate_run(const SimulateArgs& a) {
  const Model model = MEGARTP_TRY(load_model(a.model));
  const OpGraph graph = glm52::attention_pre_graph(model.config, model.options, a.model.layer, a.num_layers);
  const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()));
  trace::AnalysedTrace t;
  t.trace =
      MEGARTP_TRY(is_launch_backend(a.backend) ? simulate_kernels(a, graph, shapes) : simulate_tasks(a, graph, shapes));
  t.analysis = trace::analyse(t.trace);
  return t;
}

std::string shapes_text(const trace::TraceMeta& meta) {
  std::string text;
  for (const auto& [name, value] : meta.shapes) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  return text;
}

Result<Prediction> compare_with(const SimulateArgs& a, const trace::TraceMeta& predicted) {
  const trace::TraceMeta measured = MEGARTP_TRY(trace::load_trace(a.against))
  .meta;
  const bool is_other = !a.backend.empty() && measured.backend != a.backend && measured.backend != predicted.backend;
  // Without --backend a plan is simulated, which launch plans are not.
  const bool is_launch = a.backend.empty() && is_launch_backend(measured.backend);
  const bool is_elsewhere =
      measured.graph != predicted.graph || (!measured.target.empty() && measured.target != predicted.target);
  if (measured.shapes != predicted.shapes || is_other || is_launch || is_elsewhere)
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is of another run: {} on {}, {} with {}; simulated is {} on {}, {} with {}", a.against,
                    measured.graph, measured.target, measured.backend, shapes_text(measured), predicted.graph,
                    predicted.target, a.backend.empty() ? "a plan" : a.backend, shapes_text(predicted)));
  Prediction p;
  p.is_timed = measured.timed_ns > 0 && predicted.timed_ns > 0;
  p.measured_ns = p.is_timed ? measured.timed_ns : static_cast<double>(measured.span_ns);
  p.predicted_ns = p.is_timed ? predicted.timed_ns : static_cast<double>(predicted.span_ns);
  return p;
}

// Options that do not go together: the sentence, or nothing.
std::string_view misused_simulate_options(const SimulateArgs& a) {
  if (is_launch_backend(a.backend) && a.packing_given)
    return "trace simulate: --workers, --packer, --finalizer and --events are for plans and mega";
  if (!is_launch_backend(a.backend) && a.launch_given)
    return "trace simulate: --edge, --level and --only go with the backends serial, pdl, dag and cmp";
  if (a.backend == "mega" && a.finalizer_given && a.plan.finalizer != "tasks")
    return "trace simulate: the persistent kernel runs plans with --finalizer tasks only";
  return {};
}

void print_simulated(const SimulateArgs& a, const trace::AnalysedTrace& t, uint64_t bytes, double least_us) {
  std::cout << fmt::format("{}: {}\n", a.plan.target, trace_summary_line(t));
  if (t.trace.meta.timed_ns > 0)
    std::cout << fmt::format("{:.1f} us between two event records around the launch\n", t.trace.meta.timed_ns / 1e3);
  std::cout << fmt::format("{:.1f} MB, which the target reads in {:.1f} us\n", static_cast<double>(bytes) / 1e6,
                           least_us);
}

int run_simulate(const SimulateArgs& a) {
  constexpr std::string_view kName = "trace-simulate";
  if (const std::string_view misuse = misused_simulate_options(a); !misuse.empty())
    return print_error(Error{ErrorCode::kInvalidArgument, std::string(misuse)}, a.common, kName);
  const trace::AnalysedTrace t = value_or_exit(simulate_run(a), a.common, kName);
  if (!a.output.empty()) value_or_exit(save_trace(t.trace, a.output), a.common, kName);
  Prediction p;
  if (!a.against.empty()) p = value_or_exit(compare_with(a, t.trace.meta), a.common, kName);
  const bool is_off = a.max_error > 0 && !(std::abs(p.error()) * 100 <= a.max_error);
  uint64_t bytes = 0;
  for (const trace::TraceTask& task : t.trace.tasks) bytes += task.weight_bytes + task.other_bytes;
  const double least_us =
      t.trace.meta.read_gb_per_s > 0 ? static_cast<double>(bytes) / t.trace.meta.read_gb_per_s / 1e3 : 0;
  if (a.common.json) {
    Json j = trace_summary_json(t);
    j["bytes"] = bytes;
    j["least_ns"] = least_us * 1e3;
    if (!a.against.empty())
      j["against"] = {{"predicted_ns", p.predicted_ns},
                      {"measured_ns", p.measured_ns},
                      {"timed", p.is_timed},
                      {"error", p.error()}};
    print_json(kName, std::move(j));
  } else if (!a.common.quiet) {
    print_simulated(a, t, bytes, least_us);
    if (!a.against.empty())
      std::cout << fmt::format("measured {:.1f} us {}; the prediction is {:+.1f} % off\n", p.measured_ns / 1e3,
                               p.is_timed ? "between event records" : "from begin to end", 100 * p.error());
  }
  return is_off ? exit_code(ErrorCode::kMismatch) : 0;
}

}  // namespace

Command add_trace_simulate_command(CLI::App& trace) {
  auto args = std::make_shared<SimulateArgs>();
  SimulateArgs& a = *args;
  CLI::App* app = trace.add_subcommand("simulate", "Predict a run on a target; needs no device");
  add_common_options(*app, a.common);
  add_model_options(*app, a.model);
  add_batch_options(*app, a.batch);
  add_plan_options(*app, a.plan, "h200");
  add_launch_options(*app, a.launch);
  app->add_option(
         "--backend", a.backend,
         "What runs it: serial, pdl, dag and cmp launch kernels, mega the persistent one (default: the plan as "
         "`megartp plan` makes it)")
      ->check(CLI::IsMember({"serial", "pdl", "dag", "cmp", "mega"}));
  app->add_option("--layers", a.num_layers, "Consecutive layers")->check(CLI::Range(1, 1000))->capture_default_str();
  app->add_option("-o,--output", a.output, "Write the simulated run as a trace file");
  CLI::Option* against =
      app->add_option("--against", a.against, "Recorded trace of the same run: prints the prediction's error");
  app->add_option("--max-error", a.max_error, "Exit code 1 when the error is larger, percent")->needs(against);
  app->footer(
      "Examples:\n"
      "  megartp trace simulate glm52-attention-pre --target b300 -o b300.trace && megartp trace show b300.trace\n"
      "  megartp trace simulate glm52-attention-pre --backend cmp --against cmp.trace --max-error 15");
  return {app, [args, app] {
            args->launch_given = app->count("--edge") + app->count("--level") + app->count("--only") > 0;
            args->packing_given =
                app->count("--workers") + app->count("--packer") + app->count("--finalizer") + app->count("--events") >
                0;
            args->finalizer_given = app->count("--finalizer") > 0;
            args->packer_given = app->count("--packer") > 0;
            return run_simulate(*args);
          }};
}

}  // namespace megartp::cli
