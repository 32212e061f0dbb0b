#include "cli/run_launch.h"

#include <iostream>

#include <fmt/format.h>

#include "backends/cuda_common/driver.h"
#include "backends/cuda_graph/kernel_trace.h"
#include "backends/cuda_graph/prepare.h"
#include "launch/launch_text.h"

namespace megartp::cli {
namespace {

constexpr LaunchMode kModes[] = {LaunchMode::kSerial, LaunchMode::kPdl, LaunchMode::kDag, LaunchMode::kCmp};

Json range_json(const cuda_graph::TimeRange& range) { return {range.first_ns, range.last_ns}; }

Json trace_json(const bench::ColdTrace& traced, const cuda_graph::KernelTrace& trace, const std::string& file) {
  Json j{{"file", file}, {"plain_us", traced.plain_us.median}, {"traced_us", traced.traced_us.median}};
  j["kernels"] = Json::array();
  for (const cuda_graph::KernelSummary& s : cuda_graph::summarize(trace))
    j["kernels"].push_back({{"kernel", s.name},
                            {"ctas", s.num_ctas},
                            {"sms", s.num_sms},
                            {"enter_ns", range_json(s.enter)},
                            {"inputs_ns", range_json(s.inputs)},
                            {"done_ns", range_json(s.done)}});
  return j;
}

}  // namespace

bool is_launch_backend(std::string_view backend) { return parse_launch_mode(backend).has_value(); }

Result<uint32_t> check_gpu() {
  const cuda::DriverApi* api = MEGARTP_TRY(cuda::driver());
  return static_cast<uint32_t>(MEGARTP_TRY(cuda::device_info(*api, 0)).num_sms);
}

Result<std::shared_ptr<const LaunchPlan>> make_launch_plan(const glm52::LayerRun& run, const std::string& backend,
                                                           const LaunchArgs& args) {
  LaunchOptions options = MEGARTP_TRY(to_launch_options(args));
  options.mode = MEGARTP_TRY(parse_launch_mode(backend));
  const cuda::DeviceInfo gpu = MEGARTP_TRY(cuda::device_info(*MEGARTP_TRY(cuda::driver()), 0));
  options.target = {static_cast<uint32_t>(gpu.num_sms), gpu.smem_per_cta};
  return std::make_shared<const LaunchPlan>(MEGARTP_TRY(build_launch_plan(run.graph, run.inputs.shapes, options)));
}

Result<std::unique_ptr<Executable>> prepare_launch(const glm52::LayerRun& run, const std::string& backend,
                                                   const LaunchArgs& args, bool fuzz, const CommonOptions& common) {
  auto plan = MEGARTP_TRY(make_launch_plan(run, backend, args));
  if (common.verbose) std::cerr << explain(*plan);
  CudaGraphOptions host;
  if (fuzz) host.compile.more_options.emplace_back("-DMEGARTP_FUZZ=1");
  return prepare_cuda_graph(std::move(plan), host);
}

Status trace_kernels(const glm52::LayerRun& run, const std::string& backend, const LaunchArgs& args,
                     const std::string& file, Json* json) {
  const auto plan = MEGARTP_TRY(make_launch_plan(run, backend, args));
  const bench::ColdTrace traced = MEGARTP_TRY(bench::trace_cold_replay(run, plan));
  const cuda_graph::KernelTrace trace = MEGARTP_TRY(cuda_graph::decode_kernel_trace(*plan, traced.raw.ctas));
  MEGARTP_TRY(write_output(file, cuda_graph::to_csv(trace)));
  if (json != nullptr) {
    *json = trace_json(traced, trace, file);
    return {};
  }
  std::cout << fmt::format(
      "\none cold replay of {}, us after the first CTA entered; every CTA: {}\n{}"
      "median of {} cold replays: {:.2f} us, with the trace {:.2f} us\n",
      backend, file, cuda_graph::to_table(trace), traced.plain_us.n, traced.plain_us.median, traced.traced_us.median);
  return {};
}

Result<bench::ReplayReport> replay_backends(const glm52::LayerRun& run, const LaunchArgs& launch,
                                            const ReplayArgs& args, const CommonOptions& common) {
  bench::ReplayOptions options;
  options.launch = MEGARTP_TRY(to_launch_options(launch));
  // Edges are set for one mode; the others do not have them.
  options.launch.levels.clear();
  options.num_replays = static_cast<uint64_t>(args.num_replays);
  options.seed = args.seed;
  options.with_fuzz = args.fuzz;
  options.mega_plan = args.mega_plan;
  ProgressBar bar("replays", common);
  options.progress = [&bar](uint64_t done, uint64_t total) { bar.update(done, total); };
  return bench::check_replays(run, kModes, options);
}

Json replays_json(const bench::ReplayReport& report) {
  Json j{{"backends", report.backends}, {"tensors", report.tensors}, {"replays", report.num_replays}};
  j["mismatches"] = Json::array();
  for (const bench::ReplayMismatch& m : report.mismatches)
    j["mismatches"].push_back({{"replay", m.replay},
                               {"backend", m.backend},
                               {"tensor", m.tensor},
                               {"words", m.num_words},
                               {"first_word", m.first_word}});
  return j;
}

void print_replays(const bench::ReplayReport& report) {
  for (const bench::ReplayMismatch& m : report.mismatches)
    std::cout << fmt::format("replay {}: {} differs from {} in {} words of '{}', the first at word {}\n", m.replay,
                             m.backend, report.backends.front(), m.num_words, m.tensor, m.first_word);
  std::cout << fmt::format("{} replays with changed inputs of {}: {}\n", report.num_replays,
                           fmt::join(report.backends, ", "),
                           report.mismatches.empty() ? "the same bits in every output" : "they differ");
}

}  // namespace megartp::cli
