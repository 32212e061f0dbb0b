// megartp trace record: runs a layer with recording on and saves the trace; --cost compares with recording off.
#include "cli/trace_record.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <thread>

#include <fmt/format.h>

#include "base/env.h"
#include "bench/cold_trace.h"
#include "bench/statistics.h"
#include "cli/layer_weights.h"
#include "cli/plan_build.h"
#include "cli/run_launch.h"
#include "cli/trace.h"
#include "trace/from_plan.h"

namespace megartp::cli {
namespace {

// "Some CPU @ 3 GHz, 2 threads"
std::string machine_name() {
  std::string name = "CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
      if (at != std::string::npos) name = line.substr(at);
      break;
    }
  return fmt::format("{}, {} threads", name, std::max(1U, std::thread::hardware_concurrency()));
}

struct Recorder {
  glm52::LayerRun run;
  BuiltPlan built;
  std::unique_ptr<glm52::LayerExecution> execution;
  uint32_t records = 0;

  Status record(bool on) const { return execution->executable().record_trace(on ? records : 0); }
};

Result<std::unique_ptr<Recorder>> make_recorder(const RecordArgs& a) {
  auto recorder = std::make_unique<Recorder>(Recorder {
    MEGARTP_TRY(make_record_run(a))
    , {}, nullptr
  });
  PlanOptions plan = a.plan;
  if (plan.workers == 0 && plan.target == "cpu") plan.workers = std::max(1U, std::thread::hardware_concurrency());
  recorder->built = MEGARTP_TRY(build_plan(recorder->run.graph, recorder->run.inputs.shapes, plan));
  CpuThreadsOptions threads;
  threads.timeout = std::chrono::milliseconds(MEGARTP_TRY(env_timeout_ms()));
  threads.schedule = MEGARTP_TRY(parse_schedule(a.schedule));
  // Without its own clock readings: what --cost compares with is a run that takes no times at all.
  threads.collect_stats = false;
  const KernelPlan& made = *recorder->built.plan;
  recorder->records = a.records != 0                          ? a.records
                      : threads.schedule == Schedule::kStatic ? made.queue_depth
                                                              : made.num_tasks;
  recorder->execution = std::make_unique<glm52::LayerExecution>(MEGARTP_TRY(
      glm52::LayerExecution::create(recorder->run, MEGARTP_TRY(prepare_cpu_threads(recorder->built.plan, threads)))));
  return recorder;
}

// The run of median length or the shortest, of `repeat` after one to warm up.
Result<RawTrace> record_one(Recorder& recorder, int64_t repeat, bool shortest) {
  MEGARTP_TRY(recorder.record(true));
  MEGARTP_TRY(recorder.execution->run(true));
  std::vector<RawTrace> traces;
  for (int64_t i = 0; i < repeat; ++i) {
    MEGARTP_TRY(recorder.execution->run(false));
    traces.push_back(*recorder.execution->executable().raw_trace());
  }
  return bench::pick_run(std::move(traces), shortest);
}

// Runs with and without recording in turn, so that what else the machine does meets both; which goes first alternates.
Result<RecordingCost> measure_cost(Recorder& recorder, int64_t pairs) {
  std::vector<double> without, with;
  for (int64_t i = 0; i < 2 * pairs; ++i) {
    const bool on = (i % 4 == 1) || (i % 4 == 2);
    MEGARTP_TRY(recorder.record(on));
    (on ? with : without).push_back(MEGARTP_TRY(recorder.execution->run(false)).wall_ns);
  }
  return RecordingCost{pairs, bench::summarize(std::move(without)).median, bench::summarize(std::move(with)).median};
}

Result<Recording> record_on_threads(const RecordArgs& a) {
  const std::unique_ptr<Recorder> recorder = MEGARTP_TRY(make_recorder(a));
  const RawTrace raw = MEGARTP_TRY(record_one(*recorder, a.repeat, a.is_shortest()));
  trace::TraceMeta meta;
  meta.name = a.name.empty() ? a.backend : a.name;
  meta.backend = a.backend;
  meta.machine = machine_name();
  meta.schedule = a.schedule;
  Recording recording;
  recording.trace = MEGARTP_TRY(
      trace::trace_of_plan(*recorder->built.plan, task_costs(*recorder->built.tasks), raw, std::move(meta)));
  if (a.cost > 0) recording.cost = MEGARTP_TRY(measure_cost(*recorder, a.cost));
  return recording;
}

bool is_gpu_backend(const RecordArgs& a) { return a.backend == "mega" || is_launch_backend(a.backend); }

// Options that do not go together: the sentence, or nothing.
std::string_view misused_record_options(const RecordArgs& a) {
  if (is_gpu_backend(a) && a.threads_given) return "trace record: --schedule and --records go with cpu-threads";
  if (!is_launch_backend(a.backend) && a.launch_given)
    return "trace record: --edge, --level and --only go with the backends serial, pdl, dag and cmp";
  if (is_launch_backend(a.backend) && a.packing_given)
    return "trace record: --target, --workers, --packer, --finalizer and --events are for cpu-threads and mega";
  if (a.backend != "mega" && a.mega.is_ordinary) return "trace record: --ordinary-launch goes with the backend mega";
  if (a.backend == "mega" && a.finalizer_given && a.plan.finalizer != "tasks")
    return "trace record: the persistent kernel runs plans with --finalizer tasks only";
  return {};
}

void print_recording(const RecordArgs& a, const trace::AnalysedTrace& t, const RecordingCost& cost) {
  std::cout << fmt::format("{}: {}\n", a.output, trace_summary_line(t));
  if (t.trace.meta.num_lost != 0)
    std::cout << fmt::format("{} records were lost{}\n", t.trace.meta.num_lost,
                             is_gpu_backend(a) ? "" : ": the buffers were full (--records)");
  if (cost.pairs > 0)
    std::cout << fmt::format("recording: {:.1f} us with, {:.1f} us without it, {:+.2f} % (medians of {} runs each)\n",
                             cost.with_ns / 1e3, cost.without_ns / 1e3, 100 * (cost.ratio() - 1), cost.pairs);
}

int run_record(const RecordArgs& a) {
  constexpr std::string_view kName = "trace-record";
  if (a.backend != "cpu-threads" && !is_gpu_backend(a))
    return print_error(
        Error{ErrorCode::kUnsupported, fmt::format("trace record: backend '{}' does not record", a.backend)}, a.common,
        kName);
  if (const std::string_view misuse = misused_record_options(a); !misuse.empty())
    return print_error(Error{ErrorCode::kInvalidArgument, std::string(misuse)}, a.common, kName);
  Recording recording = value_or_exit(is_gpu_backend(a) ? record_on_gpu(a) : record_on_threads(a), a.common, kName);
  trace::AnalysedTrace t;
  t.trace = std::move(recording.trace);
  t.analysis = trace::analyse(t.trace);
  value_or_exit(save_trace(t.trace, a.output), a.common, kName);
  if (a.common.json) {
    Json j = trace_summary_json(t);
    j["file"] = a.output;
    const RecordingCost& cost = recording.cost;
    if (cost.pairs > 0)
      j["cost"] = {
          {"pairs", cost.pairs}, {"without_ns", cost.without_ns}, {"with_ns", cost.with_ns}, {"ratio", cost.ratio()}};
    return print_json(kName, std::move(j));
  }
  if (!a.common.quiet) print_recording(a, t, recording.cost);
  return 0;
}

}  // namespace

Result<glm52::LayerRun> make_record_run(const RecordArgs& a) {
  const Model model = MEGARTP_TRY(load_model(a.model));
  const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()));
  glm52::Inputs inputs = MEGARTP_TRY(glm52::synth_inputs(model.config, model.options, shapes, a.seed));
  glm52::Weights weights = MEGARTP_TRY(load_layer_weights(model.config, a.model.layer, a.weights, a.common));
  return glm52::make_layer_run(model.config, model.options, a.model.layer, std::move(inputs), std::move(weights));
}

Command add_trace_record_command(CLI::App& trace) {
  auto args = std::make_shared<RecordArgs>();
  RecordArgs& a = *args;
  CLI::App* app = trace.add_subcommand("record", "Run a layer and save when each of its tasks waited and ran");
  add_common_options(*app, a.common);
  add_model_options(*app, a.model);
  add_batch_options(*app, a.batch);
  add_plan_options(*app, a.plan, "cpu");
  app->add_option("--weights", a.weights, "Checkpoint (safetensors, HF names); default: a seeded one");
  app->add_option("--backend", a.backend, "Backend: cpu-threads; on a GPU serial, pdl, dag, cmp, mega")
      ->capture_default_str();
  app->add_option("--schedule", a.schedule, "Static queues, or schedulers that hand out tasks")
      ->check(CLI::IsMember({"static", "dynamic"}))
      ->capture_default_str();
  add_launch_options(*app, a.launch);
  add_mega_options(*app, a.mega);
  app->add_option("--name", a.name, "How reports call the trace (default: the backend)");
  app->add_option("--seed", a.seed, "Seed of the inputs")->capture_default_str();
  app->add_option("--repeat", a.repeat, "Runs that are recorded, after warming up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--pick", a.pick, "Which run is saved; the shortest is the one that other programs disturbed least")
      ->check(CLI::IsMember({"median", "shortest"}))
      ->capture_default_str();
  app->add_option("--records", a.records, "Room of each worker, tasks (default: as many as there can be)")
      ->check(CLI::Range(1U, 1U << 24));
  app->add_option(
         "--cost", a.cost,
         "Measure what recording costs: so many runs with and without it, in turn (on a GPU always, 50 by default)")
      ->check(CLI::Range(1, 10000));
  app->add_option("-o,--output", a.output, "Trace file to write")->required();
  app->footer(
      "Examples:\n"
      "  megartp trace record glm52-attention-pre -o layer.trace\n"
      "  megartp trace record glm52-attention-pre --packer round-robin --cost 50 -o other.trace\n"
      "  megartp trace record glm52-attention-pre --backend cmp --repeat 20 -o cmp.trace");
  return {app, [args, app] {
            args->threads_given = app->count("--schedule") + app->count("--records") > 0;
            args->launch_given = app->count("--edge") + app->count("--level") + app->count("--only") > 0;
            args->packing_given = app->count("--target") + app->count("--workers") + app->count("--packer") +
                                      app->count("--finalizer") + app->count("--events") >
                                  0;
            args->target_given = app->count("--target") > 0;
            args->packer_given = app->count("--packer") > 0;
            args->finalizer_given = app->count("--finalizer") > 0;
            return run_record(*args);
          }};
}

}  // namespace megartp::cli
