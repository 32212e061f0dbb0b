#include "bench/cuda_timer.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/cuda_graph/cuda_graph_executable.h"
#include "backends/cuda_mega/mega_executable.h"
#include "bench/subgraph.h"
#include "codegen/mega_source.h"

namespace megartp::bench {

using cuda_graph::CudaGraphExecutable;
using cuda_graph::LoadedCode;

struct CudaTimer::Prepared {
  std::vector<std::unique_ptr<cuda::DeviceExecutable>> executables;  // one a copy
  uint32_t num_kernels = 0;
  uint64_t num_bytes = 0;
  bool is_small = false;  // all copies together may stay in L2
};

CudaTimer::CudaTimer(const glm52::Config& config, const glm52::Options& options, int64_t layer, glm52::Weights weights,
                     const CudaTimerOptions& timer_options)
    : config_(config),
      options_(options),
      graph_(glm52::attention_pre_graph(config, options, layer)),
      weights_(std::move(weights)),
      timer_options_(timer_options) {}

Result<std::unique_ptr<CudaTimer>> CudaTimer::create(const glm52::Config& config, const glm52::Options& options,
                                                     int64_t layer, glm52::Weights weights,
                                                     const CudaTimerOptions& timer_options,
                                                     std::shared_ptr<const cuda::Context> context) {
  if (!context) context = MEGARTP_TRY(cuda::Context::open(*MEGARTP_TRY(cuda::driver())));
  std::unique_ptr<CudaTimer> timer(new CudaTimer(config, options, layer, std::move(weights), timer_options));
  MEGARTP_TRY(Status(timer->graph_.status()));
  timer->context_ = std::move(context);
  timer->frame_ = MEGARTP_TRY(CudaFrame::create(timer->context_));
  timer->copies_ = std::make_unique<WeightCopies>(timer->context_, timer->weights_, timer_options.num_copies);
  return timer;
}

Result<const glm52::Inputs*> CudaTimer::inputs_of(const Batch& batch) {
  const std::tuple key(batch.m, batch.kv, batch.requests);
  const auto it = inputs_.find(key);
  if (it != inputs_.end()) return &it->second;
  const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(batch.m, batch.kv, batch.requests));
  glm52::Inputs inputs = MEGARTP_TRY(glm52::synth_inputs(config_, options_, shapes, timer_options_.seed));
  return &(inputs_[key] = std::move(inputs));
}

Result<LaunchPlan> CudaTimer::plan(const BenchCase& c) const {
  LaunchOptions options = c.launch;
  options.target.num_sms = static_cast<uint32_t>(context_->info().num_sms);
  options.target.smem_per_cta = context_->info().smem_per_cta;
  return build_launch_plan(graph_, MEGARTP_TRY(glm52::decode_shapes(c.batch.m, c.batch.kv, c.batch.requests)), options);
}

Result<CudaTimer::MakeExecutable> CudaTimer::graph_maker(const LaunchPlan& plan) const {
  const auto shared = std::make_shared<const LaunchPlan>(plan);
  const std::shared_ptr<const LoadedCode> code = MEGARTP_TRY(LoadedCode::load(context_, plan, timer_options_.compile));
  return [shared, code]() -> Result<std::unique_ptr<cuda::DeviceExecutable>> {
    return CudaGraphExecutable::create(shared, code);
  };
}

namespace {

Result<KernelPlan> mega_plan(const OpGraph& graph, const BenchCase& c, uint32_t num_sms) {
  MegaPlanOptions options = *c.mega;
  options.num_sms = num_sms;
  return build_mega_plan(graph, MEGARTP_TRY(glm52::decode_shapes(c.batch.m, c.batch.kv, c.batch.requests)), options);
}

}  // namespace

// The kernel of all ops of the graph, also for a case that has some of them: it is compiled once.
Result<std::shared_ptr<const cuda_mega::MegaCode>> CudaTimer::mega_code(const BenchCase& c) {
  if (mega_code_ == nullptr) {
    const KernelPlan whole = MEGARTP_TRY(mega_plan(graph_, c, static_cast<uint32_t>(context_->info().num_sms)));
    mega_code_ = MEGARTP_TRY(cuda_mega::MegaCode::load(context_, codegen::mega_opcodes(whole), timer_options_.compile));
  }
  return mega_code_;
}

Result<CudaTimer::MakeExecutable> CudaTimer::mega_maker(const BenchCase& c) {
  const OpGraph part = MEGARTP_TRY(subgraph(graph_, c.launch.only_ops));
  const auto plan = std::make_shared<const KernelPlan>(
      MEGARTP_TRY(mega_plan(part, c, static_cast<uint32_t>(context_->info().num_sms))));
  const auto code = MEGARTP_TRY(mega_code(c));
  cuda_mega::MegaRunOptions run;
  run.is_cooperative = timer_options_.is_cooperative;
  run.is_empty = c.is_empty;
  return [plan, code, run]() -> Result<std::unique_ptr<cuda::DeviceExecutable>> {
    return cuda_mega::MegaExecutable::create(plan, code, run);
  };
}

Result<CudaTimer::Prepared> CudaTimer::prepare(const BenchCase& c) {
  Prepared p;
  // The bytes of mega are those that the kernels of a launch plan say for the same work.
  const LaunchPlan launch = MEGARTP_TRY(plan(c));
  p.num_kernels = c.mega ? 1 : static_cast<uint32_t>(launch.kernels.size());
  p.num_bytes = c.is_empty ? 0 : launch.num_bytes();
  const MakeExecutable make = c.mega ? MEGARTP_TRY(mega_maker(c)) : MEGARTP_TRY(graph_maker(launch));
  const glm52::Inputs& inputs = *MEGARTP_TRY(inputs_of(c.batch));
  for (uint32_t i = 0; i < timer_options_.num_copies; ++i) {
    auto exec = MEGARTP_TRY(make());
    MEGARTP_TRY(copies_->make_ready(*exec, i, inputs));
    p.executables.push_back(std::move(exec));
  }
  p.is_small = p.num_bytes * timer_options_.num_copies < 2 * context_->info().l2_bytes;
  return p;
}

// A run that gave up took no time worth knowing.
Status CudaTimer::check_runs(const Prepared& p) const {
  const cuda::Context::Scope current(*context_);
  MEGARTP_CUDA_TRY(context_->api(), ctx_synchronize());
  for (const auto& exec : p.executables) MEGARTP_TRY(exec->finish());
  return {};
}

Result<std::vector<double>> CudaTimer::time_cold(const Prepared& p) {
  return frame_->time(
      timer_options_.num_samples, timer_options_.num_warm_up,
      [&](size_t i, cuda::StreamHandle stream) { return p.executables[i % p.executables.size()]->run(stream); },
      p.is_small);
}

Result<BenchRow> CudaTimer::time_prepared(const BenchCase& c, const Prepared& p) {
  BenchRow row;
  row.group = c.group;
  row.name = c.name;
  row.batch = c.batch;
  row.num_kernels = p.num_kernels;
  row.num_bytes = p.num_bytes;
  row.cold = summarize(MEGARTP_TRY(time_cold(p)));
  if (timer_options_.with_same)
    row.same = summarize(
        MEGARTP_TRY(frame_->time(timer_options_.num_samples, timer_options_.num_warm_up,
                                 [&](size_t, cuda::StreamHandle stream) { return p.executables[0]->run(stream); })));
  MEGARTP_TRY(check_runs(p));
  if (!timer_options_.with_read || row.num_bytes == 0) return row;
  const auto it = read_us_.find(row.num_bytes);
  if (it != read_us_.end()) {
    row.read_us = it->second;
  } else {
    const uint64_t cold_bytes = std::max(row.num_bytes * timer_options_.num_copies, 4 * context_->info().l2_bytes);
    row.read_us = MEGARTP_TRY(frame_->read(row.num_bytes, cold_bytes, timer_options_.num_samples))
    .median;
    read_us_[row.num_bytes] = row.read_us;
  }
  return row;
}

Result<BenchRow> CudaTimer::time(const BenchCase& c) {
  auto prepared = prepare(c);
  auto row = prepared ? time_prepared(c, *prepared) : Result<BenchRow>(tl::unexpected(prepared.error()));
  if (!row) return tl::unexpected(std::move(row).error().with("case", fmt::format("{}, {}", c.group, c.name)));
  return row;
}

Status CudaTimer::add_span(const cuda::CuptiApi& api, const BenchCase& c, cuda::ActivitySource source, BenchRow& row) {
  const cuda::Context::Scope scope(*context_);
  const auto trace = MEGARTP_TRY(cuda::ActivityTrace::start(api, source));
  const Prepared p = MEGARTP_TRY(prepare(c));
  const std::vector<double> us = MEGARTP_TRY(time_cold(p));
  MEGARTP_TRY(check_runs(p));
  const std::vector<cuda::LaunchSpan> spans = MEGARTP_TRY(trace->finish());
  const auto is_whole = [&](const cuda::LaunchSpan& s) {
    return source == cuda::ActivitySource::kGraphs || s.num_kernels == p.num_kernels;
  };
  const size_t num_launches = timer_options_.num_warm_up + us.size();
  if (spans.size() != num_launches || !std::ranges::all_of(spans, is_whole))
    return make_error(
        ErrorCode::kDeviceError,
        fmt::format("CUPTI has records of {} launches of {} kernels at first, where {} launches of {} were "
                    "made",
                    spans.size(), spans.empty() ? 0 : spans[0].num_kernels, num_launches, p.num_kernels));
  std::vector<double> span_us;
  for (const cuda::LaunchSpan& s : std::span(spans).subspan(timer_options_.num_warm_up)) span_us.push_back(s.us());
  row.span = summarize(std::move(span_us));
  row.traced = summarize(us);
  return {};
}

Status CudaTimer::add_spans(const std::vector<BenchCase>& cases, cuda::ActivitySource source,
                            std::vector<BenchRow>& rows) {
  const cuda::CuptiApi* api = timer_options_.cupti;
  if (api == nullptr) api = MEGARTP_TRY(cuda::cupti());
  for (size_t i = 0; i < std::min(cases.size(), rows.size()); ++i) {
    Status added = add_span(*api, cases[i], source, rows[i]);
    if (!added)
      return tl::unexpected(
          std::move(added).error().with("case", fmt::format("{}, {}", cases[i].group, cases[i].name)));
  }
  return {};
}

Result<double> CudaTimer::quick_us(const BenchCase& c) {
  const Prepared p = MEGARTP_TRY(prepare(c));
  return summarize(MEGARTP_TRY(time_cold(p))).median;
}

Status CudaTimer::fill_head(BenchReport& report) {
  const cuda::DeviceInfo& info = context_->info();
  int version = 0;
  MEGARTP_CUDA_TRY(context_->api(), driver_get_version(&version));
  report.model = graph_.name();
  report.device = info.name;
  report.driver = "CUDA " + cuda::version_text(version);
  report.num_copies = timer_options_.num_copies;
  report.l2_bytes = info.l2_bytes;
  report.weight_bytes = copies_->bytes_per_copy();
  report.offset = MEGARTP_TRY(frame_->offset(timer_options_.num_samples));
  report.empty = MEGARTP_TRY(frame_->empty(timer_options_.num_samples));
  return {};
}

}  // namespace megartp::bench
