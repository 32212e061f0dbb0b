// megartp trace record on a GPU: kernels of a CUDA graph, or the persistent kernel.
#include <algorithm>
#include <cctype>

#include "bench/cold_trace.h"
#include "cli/plan_build.h"
#include "cli/run_launch.h"
#include "cli/trace_record.h"
#include "trace/from_kernels.h"
#include "trace/from_plan.h"

namespace megartp::cli {
namespace {

// Timed pairs when --cost does not ask for more: a trace says how long the run takes without it.
constexpr int64_t kGpuPairs = 50;

// "NVIDIA H200" -> h200; nothing for a GPU without a preset.
const TargetDesc* target_of_device(std::string device) {
  std::ranges::transform(device, device.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto presets = target_presets();
  const auto it =
      std::ranges::find_if(presets, [&](const TargetDesc& t) { return device.find(t.name) != std::string::npos; });
  return it == presets.end() ? nullptr : &*it;
}

bench::ColdTraceOptions cold_options(const RecordArgs& a) {
  bench::ColdTraceOptions options;
  options.num_traces = static_cast<size_t>(a.repeat);
  options.is_shortest = a.is_shortest();
  options.num_pairs = static_cast<size_t>(a.cost > 0 ? a.cost : kGpuPairs);
  options.is_cooperative = !a.mega.is_ordinary;
  return options;
}

trace::TraceMeta meta_of(const RecordArgs& a, const bench::ColdTrace& cold) {
  trace::TraceMeta meta;
  meta.name = a.name;
  meta.backend = a.backend;
  meta.machine = cold.device;
  meta.timed_ns = cold.plain_us.median * 1e3;
  if (const TargetDesc* target = target_of_device(cold.device)) {
    meta.target = target->name;
    meta.read_gb_per_s = target->read_gb_per_s;
    meta.gflops = target->gflops;
  }
  return meta;
}

Recording recording_of(trace::Trace trace, const bench::ColdTrace& cold) {
  return {std::move(trace),
          {static_cast<int64_t>(cold.plain_us.n), cold.plain_us.median * 1e3, cold.traced_us.median * 1e3}};
}

Result<Recording> record_launch(const RecordArgs& a, const glm52::LayerRun& run) {
  const auto plan = MEGARTP_TRY(make_launch_plan(run, a.backend, a.launch));
  const bench::ColdTrace cold = MEGARTP_TRY(bench::trace_cold_replay(run, plan, cold_options(a)));
  return recording_of(MEGARTP_TRY(trace::trace_of_launch(*plan, cold.raw, meta_of(a, cold))), cold);
}

Result<Recording> record_mega(const RecordArgs& a, const glm52::LayerRun& run) {
  const BuiltPlan built = MEGARTP_TRY(build_plan(run.graph, run.inputs.shapes, a.plan));
  const std::vector<TaskCost> costs = task_costs(*built.tasks);
  uint64_t num_bytes = 0;
  for (const TaskCost& cost : costs) num_bytes += cost.weight_bytes + cost.other_bytes;
  const bench::ColdTrace cold = MEGARTP_TRY(bench::trace_cold_replay(run, built.plan, num_bytes, cold_options(a)));
  trace::TraceMeta meta = meta_of(a, cold);
  if (meta.name.empty()) meta.name = a.backend;
  meta.schedule = "static";
  return recording_of(MEGARTP_TRY(trace::trace_of_plan(*built.plan, costs, cold.raw, std::move(meta))), cold);
}

}  // namespace

Result<Recording> record_on_gpu(RecordArgs args) {
  const uint32_t num_sms = MEGARTP_TRY(check_gpu());
  if (args.backend == "mega") set_mega_defaults(args.plan, args.target_given, args.packer_given, num_sms);
  const glm52::LayerRun run = MEGARTP_TRY(make_record_run(args));
  return args.backend == "mega" ? record_mega(args, run) : record_launch(args, run);
}

}  // namespace megartp::cli
