// megartp run: one layer on a backend, with a table per op and, on request, a comparison with the reference.
#include <iostream>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "base/env.h"
#include "cli/cli.h"
#include "cli/launch_options.h"
#include "cli/layer_weights.h"
#include "cli/plan_build.h"
#include "cli/run_explore.h"
#include "cli/run_launch.h"
#include "cli/run_mega.h"
#include "cli/run_output.h"
#include "models/glm52/layer_run.h"
#include "plan/fault_dump.h"

namespace megartp::cli {
namespace {

struct RunArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  PlanOptions plan;
  std::string weights;
  std::string input;
  std::string output;
  std::string plan_file;
  std::string backend;  // empty: MEGARTP_BACKEND, else cpu-threads
  uint64_t seed = 1;
  uint64_t interleave_seed = 0;
  int64_t timeout_ms = 0;
  int64_t repeat = 1;
  std::string schedule = "static";
  std::string dispatch = "mixed";
  uint32_t schedulers = 0;
  std::string fault_dump;
  uint32_t lose_signals_of = abi::kNoTask;
  LaunchArgs launch;
  MegaArgs mega;
  int64_t replays = 0;
  bool fuzz = false;
  std::string kernel_trace;
  bool explore = false;
  uint64_t max_executions = 1000;
  bool check = false;
  bool keep_intermediates = false;
  bool sizes_given = false;
  bool packing_given = false;
  bool target_given = false;
  bool packer_given = false;
  bool finalizer_given = false;
  bool threads_given = false;  // what only CPU threads do
  bool repeat_given = false;
  bool lose_given = false;
  bool launch_given = false;
  bool replays_given = false;
  bool is_mega() const { return backend == "mega"; }
  bool is_on_gpu() const { return is_mega() || is_launch_backend(backend); }
  std::shared_ptr<const KernelPlan> loaded_plan;  // of plan_file
};

Result<glm52::LayerRun> prepare_run(const RunArgs& a) {
  const Model model = MEGARTP_TRY(load_model(a.model));
  glm52::Inputs inputs;
  if (!a.input.empty()) {
    inputs = MEGARTP_TRY(glm52::load_inputs(model.config, a.input));
  } else {
    const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()));
    inputs = MEGARTP_TRY(glm52::synth_inputs(model.config, model.options, shapes, a.seed));
  }
  glm52::Weights weights = MEGARTP_TRY(load_layer_weights(model.config, a.model.layer, a.weights, a.common));
  return glm52::make_layer_run(model.config, model.options, a.model.layer, std::move(inputs), std::move(weights));
}

// A plan read from a file must be one of this very graph and batch.
Status check_plan_fits(const std::string& path, const std::shared_ptr<const KernelPlan>& plan,
                       const glm52::LayerRun& run) {
  for (TensorId id = 0; id < run.graph.tensors().size(); ++id) {
    const TensorInfo& t = run.graph.tensor(id);
    const auto dims = MEGARTP_TRY(run.inputs.shapes.eval(t.shape));
    if (id >= plan->tensors.size() || plan->tensors[id].name != t.name || plan->tensors[id].dims != dims ||
        plan->tensors[id].dtype != t.dtype)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("plan '{}' is not for this graph and batch: tensor '{}' {} differs", path, t.name,
                                    to_string(dims)));
  }
  if (plan->graph_hash != graph_hash(run.graph))
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("plan '{}' is not for this graph: it was made for another config, layer or numeric option", path));
  if (plan->shapes.requests != run.inputs.shapes.requests)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("plan '{}' was made for other request lengths", path));
  return {};
}

cuda_mega::MegaRunOptions mega_options(const RunArgs& a) {
  cuda_mega::MegaRunOptions options;
  options.deadline = std::chrono::milliseconds(a.timeout_ms);
  options.lose_signals_of = a.lose_signals_of;
  options.is_cooperative = !a.mega.is_ordinary;
  return options;
}

struct Prepared {
  std::unique_ptr<Executable> executable;
  std::shared_ptr<const KernelPlan> plan;  // none for cpu-reference
};

Result<std::shared_ptr<const KernelPlan>> prepare_plan(const RunArgs& a, const glm52::LayerRun& run) {
  if (!a.plan_file.empty()) {
    MEGARTP_TRY(check_plan_fits(a.plan_file, a.loaded_plan, run));
    return a.loaded_plan;
  }
  PlanOptions options = a.plan;
  if (options.workers == 0 && options.target == "cpu")
    options.workers = std::max(1U, std::thread::hardware_concurrency());
  const BuiltPlan built = MEGARTP_TRY(build_plan(run.graph, run.inputs.shapes, options));
  if (a.common.verbose)
    std::cerr << fmt::format("lowered in {:.0f} us, packed in {:.0f} us, workspace {} bytes\n", built.lower_ns / 1e3,
                             built.pack_ns / 1e3, built.plan->workspace_bytes);
  return built.plan;
}

Result<CpuThreadsOptions> threads_options(const RunArgs& a) {
  CpuThreadsOptions threads;
  const int64_t timeout = a.timeout_ms != 0 ? a.timeout_ms : MEGARTP_TRY(env_timeout_ms());
  threads.timeout = std::chrono::milliseconds(timeout);
  threads.randomize = a.interleave_seed != 0;
  threads.seed = a.interleave_seed;
  threads.schedule = MEGARTP_TRY(parse_schedule(a.schedule));
  threads.dispatch = MEGARTP_TRY(parse_dispatch(a.dispatch));
  threads.num_schedulers = a.schedulers;
  threads.lose_signals_of = a.lose_signals_of;
  return threads;
}

Result<Prepared> prepare_backend(const RunArgs& a, const glm52::LayerRun& run) {
  Prepared prepared;
  if (a.backend == "cpu-reference") {
    prepared.executable = MEGARTP_TRY(prepare_cpu_reference(run.graph, run.inputs.shapes));
    return prepared;
  }
  if (is_launch_backend(a.backend)) {
    prepared.executable = MEGARTP_TRY(prepare_launch(run, a.backend, a.launch, a.fuzz, a.common));
    return prepared;
  }
  prepared.plan = MEGARTP_TRY(prepare_plan(a, run));
  if (a.is_mega()) {
    prepared.executable = MEGARTP_TRY(prepare_mega(prepared.plan, mega_options(a), a.fuzz));
    return prepared;
  }
  const CpuThreadsOptions options = MEGARTP_TRY(threads_options(a));
  prepared.executable = MEGARTP_TRY(prepare_cpu_threads(prepared.plan, options));
  return prepared;
}

// The error of a failed run, after its fault records are saved where the user wants them.
Error with_fault_dump(Error error, const Executable& executable, const std::string& path) {
  if (path.empty() || executable.fault() == nullptr) return error;
  if (const Status saved = save_fault_dump(*executable.fault(), path); !saved)
    error.details += "the fault dump was not written: " + saved.error().to_string() + "\n";
  return error;
}

Result<RunReport> execute(const RunArgs& a, const glm52::LayerRun& run, glm52::TensorMap& tensors) {
  RunReport report;
  report.backend = a.backend;
  Prepared prepared = MEGARTP_TRY(prepare_backend(a, run));
  report.plan = prepared.plan;
  auto execution = MEGARTP_TRY(glm52::LayerExecution::create(run, std::move(prepared.executable)));
  const bool always_poison = MEGARTP_TRY(env_poison());
  for (int64_t i = 0; i < a.repeat; ++i) {
    auto stats = execution.run(i == 0 || always_poison);
    if (!stats) return tl::unexpected(with_fault_dump(std::move(stats).error(), execution.executable(), a.fault_dump));
    report.stats = std::move(*stats);
    report.samples_ns.push_back(report.stats.wall_ns);
  }
  tensors = execution.collect();
  if (!a.check) return report;
  report.checked = true;
  auto reference =
      MEGARTP_TRY(glm52::LayerExecution::create(run, MEGARTP_TRY(prepare_cpu_reference(run.graph, run.inputs.shapes))));
  report.reference_ns = MEGARTP_TRY(reference.run())
  .wall_ns;
  report.diffs = MEGARTP_TRY(glm52::compare(run, tensors, reference.collect()));
  report.op_diffs = MEGARTP_TRY(glm52::compare_ops(run, tensors));
  return report;
}

// Options that do not go together: the sentence, or nothing.
std::string_view misused_options(const RunArgs& a) {
  if (!a.input.empty() && a.sizes_given) return "run: --input fixes the batch; --m, --kv and --requests go without it";
  if (a.launch_given && !is_launch_backend(a.backend))
    return "run: --edge, --level, --only and --kernel-trace go with the backends serial, pdl, dag and cmp";
  if (!a.kernel_trace.empty() && (a.fuzz || a.kernel_trace == "-"))
    return "run: --kernel-trace needs a file, and goes without --fuzz, whose delays would be in the times";
  if (a.replays_given && !a.is_on_gpu())
    return "run: --replays and --fuzz go with the backends serial, pdl, dag, cmp and mega";
  if (is_launch_backend(a.backend) && (a.packing_given || a.explore || !a.plan_file.empty()))
    return "run: --plan, --explore, --target, --workers, --packer, --finalizer and --events are for cpu-threads and "
           "mega";
  if (a.is_mega() && (a.threads_given || a.explore))
    return "run: --schedule, --dispatch, --schedulers, --interleave-seed and --explore are for cpu-threads";
  if (!a.is_mega() && a.mega.is_ordinary) return "run: --ordinary-launch goes with the backend mega";
  if (a.is_mega() && a.plan.finalizer != "tasks")
    return "run: the persistent kernel runs plans with --finalizer tasks only";
  if (!a.plan_file.empty() && (a.packing_given || a.backend == "cpu-reference"))
    return "run: --plan fixes queues and finalizers; --target, --workers, --packer, --finalizer, --events and "
           "--backend cpu-reference go without it";
  const bool runs_more = a.threads_given || a.repeat_given || a.lose_given;
  if (a.explore && (a.backend == "cpu-reference" || runs_more || a.check || !a.output.empty()))
    return "run: --explore runs every order in one thread; --check, --output, --repeat, --schedule, --dispatch, "
           "--schedulers, --interleave-seed, --lose-signals-of and --backend cpu-reference go without it";
  if (a.output == "-") return "run: --output needs a file; tensors are not written to stdout";
  return {};
}

// Prints and compares what the replays give, as the last part of the command.
bool run_replays(const RunArgs& a, const glm52::LayerRun& run, std::shared_ptr<const KernelPlan> mega_plan,
                 Json& json) {
  if (a.replays == 0) return true;
  const ReplayArgs args{a.replays, a.seed, a.fuzz, a.is_mega() ? std::move(mega_plan) : nullptr};
  const bench::ReplayReport replays = value_or_exit(replay_backends(run, a.launch, args, a.common), a.common, "run");
  if (a.common.json)
    json["replays"] = replays_json(replays);
  else
    print_replays(replays);
  return replays.mismatches.empty();
}

// Traces one more replay, where that was asked for.
void trace_kernel_times(const RunArgs& a, const glm52::LayerRun& run, Json& json) {
  if (a.kernel_trace.empty()) return;
  Json trace;
  value_or_exit(trace_kernels(run, a.backend, a.launch, a.kernel_trace, a.common.json ? &trace : nullptr), a.common,
                "run");
  if (a.common.json) json["kernel_trace"] = std::move(trace);
}

int run_run(RunArgs& a) {
  if (a.backend.empty()) a.backend = value_or_exit(env_backend(), a.common, "run");
  if (a.backend != "cpu-threads" && a.backend != "cpu-reference" && !a.is_on_gpu())
    return print_error(Error{ErrorCode::kUnsupported, fmt::format("run: backend '{}' is not available", a.backend)},
                       a.common, "run");
  if (a.is_mega() && !a.finalizer_given) a.plan.finalizer = "tasks";
  if (const std::string_view misuse = misused_options(a); !misuse.empty())
    return print_error(Error{ErrorCode::kInvalidArgument, std::string(misuse)}, a.common, "run");
  const uint32_t num_sms = a.is_on_gpu() ? value_or_exit(check_gpu(), a.common, "run") : 0;
  if (a.is_mega()) set_mega_defaults(a.plan, a.target_given, a.packer_given, num_sms);
  // First, so that a bad plan costs no checkpoint.
  if (!a.plan_file.empty())
    a.loaded_plan = std::make_shared<KernelPlan>(value_or_exit(load_plan(a.plan_file), a.common, "run"));
  const glm52::LayerRun run = value_or_exit(prepare_run(a), a.common, "run");
  if (a.explore)
    return explore_layer(run, value_or_exit(prepare_plan(a, run), a.common, "run"), a.max_executions, a.fault_dump,
                         a.common);
  glm52::TensorMap tensors;
  const RunReport report = value_or_exit(execute(a, run, tensors), a.common, "run");
  if (!a.output.empty()) value_or_exit(save_run_output(run, tensors, a.keep_intermediates, a.output), a.common, "run");
  Json json;
  if (a.common.json)
    json = report_json(run, report);
  else
    print_report(run, report, a.common);
  const bool replays_agree = run_replays(a, run, report.plan, json);
  trace_kernel_times(a, run, json);
  if (a.common.json) print_json("run", std::move(json));
  return report.passed() && replays_agree ? 0 : exit_code(ErrorCode::kMismatch);
}

void add_schedule_options(CLI::App& app, RunArgs& a) {
  app.add_option("--schedule", a.schedule, "Static queues, or schedulers that hand out tasks")
      ->check(CLI::IsMember({"static", "dynamic"}))
      ->capture_default_str();
  app.add_option("--dispatch", a.dispatch, "When the dynamic schedule hands out a task that waits")
      ->check(CLI::IsMember({"mixed", "ahead", "just-in-time"}))
      ->capture_default_str();
  app.add_option("--schedulers", a.schedulers, "Threads of the dynamic schedule (default: one for every 8 workers)")
      ->check(CLI::Range(1U, 1024U));
  app.add_option("--fault-dump", a.fault_dump,
                 "When the run gets stuck, write where everybody stood (JSON for *.json) for explain-fault");
  app.add_option("--lose-signals-of", a.lose_signals_of, "Inject a fault: the signals of this task never arrive");
  app.add_flag("--explore", a.explore, "Run a small plan in every order that can matter; exit code 1 or 6 on a fault");
  app.add_option("--max-executions", a.max_executions, "Bound of --explore")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32))
      ->capture_default_str();
}

}  // namespace

Command add_run_command(CLI::App& root) {
  auto args = std::make_shared<RunArgs>();
  RunArgs& a = *args;
  CLI::App* app = root.add_subcommand("run", "Run one layer and, with --check, compare it with the reference");
  add_common_options(*app, a.common);
  add_model_options(*app, a.model);
  add_batch_options(*app, a.batch);
  add_plan_options(*app, a.plan, "cpu");
  app->add_option("--weights", a.weights,
                  "Checkpoint (safetensors, HF names); default: a seeded one, made once in the cache folder");
  app->add_option("--input", a.input,
                  "Inputs (safetensors: x, residual, positions, context_lens, block_table, index_k_cache)");
  app->add_option("--output", a.output, "Write the outputs to this safetensors file");
  app->add_option("--plan", a.plan_file, "Run a saved plan instead of making one");
  app->add_option("--backend", a.backend, "Backend (default: MEGARTP_BACKEND, else cpu-threads)")
      ->check(CLI::IsMember({"cpu-threads", "cpu-reference", "serial", "pdl", "dag", "cmp", "mega"}));
  app->add_option("--seed", a.seed, "Seed of the inputs")->capture_default_str();
  app->add_option("--interleave-seed", a.interleave_seed, "Random delays from this seed (0: none)")
      ->capture_default_str();
  app->add_option("--timeout-ms", a.timeout_ms, "Give up when nothing moves for this long")
      ->check(CLI::Range(1, 3600000));
  app->add_option("--repeat", a.repeat, "Runs")->check(CLI::Range(1, 100000))->capture_default_str();
  add_schedule_options(*app, a);
  add_launch_options(*app, a.launch);
  add_mega_options(*app, a.mega);
  app->add_option(
         "--replays", a.replays,
         "GPU: replay serial, pdl, dag, cmp (and mega) so often on inputs that change and compare them bit for "
         "bit")
      ->check(CLI::Range(0, 10000000));
  app->add_flag("--fuzz", a.fuzz, "GPU: device code with delays at random places");
  app->add_option("--kernel-trace", a.kernel_trace,
                  "GPU: one more replay, cold, that writes when each CTA entered, had its inputs and ended to this CSV "
                  "file, and prints a summary");
  app->add_flag("--check", a.check, "Compare with cpu-reference; exit code 1 on a mismatch");
  app->add_flag("--keep-intermediates", a.keep_intermediates, "Write gate, index_q, index_k, kv_latent, k_pe too");
  app->footer(
      "Examples:\n"
      "  megartp run glm52-attention-pre --check\n"
      "  megartp run glm52-attention-pre --backend cmp --check --replays 1000\n"
      "  megartp run glm52-attention-pre --backend mega --check --replays 1000\n"
      "  megartp run glm52-attention-pre --m 33 --kv 2049 --requests 3 --workers 8 --output out.safetensors");
  return {app, [args, app] {
            args->sizes_given = app->count("--m") + app->count("--kv") + app->count("--requests") > 0;
            args->packing_given = app->count("--target") + app->count("--workers") + app->count("--packer") +
                                      app->count("--finalizer") + app->count("--events") >
                                  0;
            args->target_given = app->count("--target") > 0;
            args->packer_given = app->count("--packer") > 0;
            args->finalizer_given = app->count("--finalizer") > 0;
            args->threads_given = app->count("--schedule") + app->count("--dispatch") + app->count("--schedulers") +
                                      app->count("--interleave-seed") >
                                  0;
            args->repeat_given = app->count("--repeat") > 0;
            args->lose_given = app->count("--lose-signals-of") > 0;
            args->launch_given =
                app->count("--edge") + app->count("--level") + app->count("--only") + app->count("--kernel-trace") > 0;
            args->replays_given = app->count("--replays") + app->count("--fuzz") > 0;
            return run_run(*args);
          }};
}

}  // namespace megartp::cli
