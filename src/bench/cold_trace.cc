#include "bench/cold_trace.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/cuda_graph/cuda_graph_executable.h"
#include "backends/cuda_graph/kernel_trace.h"
#include "backends/cuda_mega/mega_executable.h"
#include "backends/cuda_mega/mega_trace.h"
#include "bench/cuda_frame.h"
#include "bench/weight_copies.h"
#include "codegen/mega_source.h"

namespace megartp::bench {
namespace {

using Executables = std::vector<std::unique_ptr<cuda::DeviceExecutable>>;

// Makes executables of a plan and reads what a traced one has recorded.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  // Compiles and loads; make() afterwards.
  virtual Status load(bool with_trace, const codegen::CompileOptions& compile) = 0;
  virtual Result<std::unique_ptr<cuda::DeviceExecutable>> make(bool with_trace) = 0;
  // Before a traced run, and after it.
  virtual Status clear() = 0;
  virtual Result<RawTrace> read(const cuda::DeviceExecutable& executable) = 0;
};

class GraphSource final : public TraceSource {
 public:
  GraphSource(std::shared_ptr<const LaunchPlan> plan, std::shared_ptr<const cuda::Context> context)
      : plan_(std::move(plan)), context_(std::move(context)) {}
  Status load(bool with_trace, const codegen::CompileOptions& compile) override {
    code_[with_trace ? 1 : 0] =
        MEGARTP_TRY(cuda_graph::LoadedCode::load(context_, *plan_, compile, {.has_module_per_kernel = with_trace}));
    if (with_trace)
      tracer_ =
          std::make_unique<cuda_graph::KernelTracer>(MEGARTP_TRY(cuda_graph::KernelTracer::create(plan_, code_[1])));
    return {};
  }
  Result<std::unique_ptr<cuda::DeviceExecutable>> make(bool with_trace) override {
    return MEGARTP_TRY(cuda_graph::CudaGraphExecutable::create(plan_, code_[with_trace ? 1 : 0]));
  }
  Status clear() override { return tracer_->clear(); }
  Result<RawTrace> read(const cuda::DeviceExecutable& /*executable*/) override { return tracer_->read_raw(); }

 private:
  std::shared_ptr<const LaunchPlan> plan_;
  std::shared_ptr<const cuda::Context> context_;
  std::shared_ptr<const cuda_graph::LoadedCode> code_[2];  // plain, traced
  std::unique_ptr<cuda_graph::KernelTracer> tracer_;
};

class MegaSource final : public TraceSource {
 public:
  MegaSource(std::shared_ptr<const KernelPlan> plan, std::shared_ptr<const cuda::Context> context, bool is_cooperative)
      : plan_(std::move(plan)), context_(std::move(context)) {
    options_.is_cooperative = is_cooperative;
  }
  Status load(bool with_trace, const codegen::CompileOptions& compile) override {
    code_[with_trace ? 1 : 0] =
        MEGARTP_TRY(cuda_mega::MegaCode::load(context_, codegen::mega_opcodes(*plan_), compile));
    return {};
  }
  Result<std::unique_ptr<cuda::DeviceExecutable>> make(bool with_trace) override {
    cuda_mega::MegaRunOptions options = options_;
    options.with_trace = with_trace;
    return MEGARTP_TRY(cuda_mega::MegaExecutable::create(plan_, code_[with_trace ? 1 : 0], options));
  }
  // Every run writes every record of its executable.
  Status clear() override { return {}; }
  Result<RawTrace> read(const cuda::DeviceExecutable& executable) override {
    // Made by make(true).
    const auto& mega = static_cast<const cuda_mega::MegaExecutable&>(executable);
    return cuda_mega::raw_trace(*plan_, MEGARTP_TRY(mega.trace()));
  }

 private:
  std::shared_ptr<const KernelPlan> plan_;
  std::shared_ptr<const cuda::Context> context_;
  cuda_mega::MegaRunOptions options_;
  std::shared_ptr<const cuda_mega::MegaCode> code_[2];
};

// The plan on every copy, with and without the trace.
class ColdReplays {
 public:
  ColdReplays(const glm52::LayerRun& run, TraceSource& source, uint64_t num_bytes, const ColdTraceOptions& options,
              std::shared_ptr<const cuda::Context> context)
      : run_(run),
        source_(source),
        options_(options),
        context_(std::move(context)),
        copies_(context_, run.weights, options.num_copies),
        // All copies together may stay in L2.
        is_small_(num_bytes * options.num_copies < 2 * context_->info().l2_bytes) {}

  Result<ColdTrace> trace() {
    frame_ = MEGARTP_TRY(CudaFrame::create(context_));
    plain_ = MEGARTP_TRY(make(false));
    traced_ = MEGARTP_TRY(make(true));
    ColdTrace result;
    result.device = context_->info().name;
    MEGARTP_TRY(time_pairs(result));
    result.raw = MEGARTP_TRY(record());
    MEGARTP_TRY(submit(plain_, 0));
    MEGARTP_TRY(submit(traced_, 0));
    MEGARTP_TRY(check_runs());
    MEGARTP_TRY(compare(*plain_[0], *traced_[0]));
    return result;
  }

 private:
  Result<Executables> make(bool with_trace) {
    codegen::CompileOptions compile = options_.compile;
    if (with_trace) compile.more_options.emplace_back(cuda_graph::kKernelTraceDefine);
    MEGARTP_TRY(source_.load(with_trace, compile));
    Executables list;
    for (uint32_t i = 0; i < options_.num_copies; ++i) {
      auto exec = MEGARTP_TRY(source_.make(with_trace));
      MEGARTP_TRY(copies_.make_ready(*exec, i, run_.inputs));
      list.push_back(std::move(exec));
    }
    return list;
  }

  Status submit(const Executables& executables, size_t copy) {
    MEGARTP_TRY(frame_->time(
        1, 0, [&](size_t, cuda::StreamHandle stream) { return executables[copy]->run(stream); }, is_small_));
    return {};
  }

  // In turn, so that what the GPU's clocks do meets both; who goes first changes, and no copy stays with one of them.
  bool is_traced(size_t i) const { return ((i % 4 == 1 || i % 4 == 2) != ((i / options_.num_copies) % 2 == 1)); }
  Status time_pairs(ColdTrace& result) {
    const auto run = [&](size_t i, cuda::StreamHandle stream) {
      return (is_traced(i) ? traced_ : plain_)[i % options_.num_copies]->run(stream);
    };
    const std::vector<double> us =
        MEGARTP_TRY(frame_->time(2 * options_.num_pairs, 2 * options_.num_warm_up, run, is_small_));
    std::vector<double> of[2];
    for (size_t i = 0; i < us.size(); ++i) of[is_traced(2 * options_.num_warm_up + i) ? 1 : 0].push_back(us[i]);
    result.plain_us = summarize(std::move(of[0]));
    result.traced_us = summarize(std::move(of[1]));
    return check_runs();
  }

  Result<RawTrace> record() {
    std::vector<RawTrace> traces;
    // The copy behind that of the last timed run, and so on: each is the one used longest ago.
    const size_t first = 2 * (options_.num_warm_up + options_.num_pairs);
    for (size_t i = 0; i < options_.num_traces; ++i) {
      const size_t copy = (first + i) % options_.num_copies;
      MEGARTP_TRY(source_.clear());
      MEGARTP_TRY(submit(traced_, copy));
      traces.push_back(MEGARTP_TRY(source_.read(*traced_[copy])));
    }
    return pick_run(std::move(traces), options_.is_shortest);
  }

  // A run that gave up took no time worth knowing.
  Status check_runs() const {
    const cuda::Context::Scope current(*context_);
    MEGARTP_CUDA_TRY(context_->api(), ctx_synchronize());
    for (const Executables* list : {&plain_, &traced_})
      for (const auto& exec : *list) MEGARTP_TRY(exec->finish());
    return {};
  }

  Status compare(const cuda::DeviceExecutable& plain, const cuda::DeviceExecutable& traced) const {
    for (const TensorInfo& t : run_.graph.tensors()) {
      if (t.storage != Storage::kOutput && t.storage != Storage::kState) continue;
      const cuda::DeviceTensor* tensor = plain.tensors().find(t.name);
      if (tensor == nullptr || !tensor->is_used()) continue;
      std::vector<std::byte> want(tensor->num_bytes);
      std::vector<std::byte> got(tensor->num_bytes);
      MEGARTP_TRY(plain.download(t.name, want));
      MEGARTP_TRY(traced.download(t.name, got));
      if (want != got)
        return make_error(ErrorCode::kMismatch, fmt::format("with the trace '{}' has other bits than without", t.name));
    }
    return {};
  }

  const glm52::LayerRun& run_;
  TraceSource& source_;
  const ColdTraceOptions& options_;
  std::shared_ptr<const cuda::Context> context_;
  WeightCopies copies_;
  bool is_small_;
  std::unique_ptr<CudaFrame> frame_;
  Executables plain_, traced_;
};

Result<std::shared_ptr<const cuda::Context>> context_or_first(std::shared_ptr<const cuda::Context> context) {
  if (context) return context;
  return cuda::Context::open(*MEGARTP_TRY(cuda::driver()));
}

}  // namespace

RawTrace pick_run(std::vector<RawTrace> runs, bool is_shortest) {
  const auto picked = runs.begin() + static_cast<std::ptrdiff_t>(is_shortest ? 0 : runs.size() / 2);
  std::ranges::nth_element(runs, picked, {}, [](const RawTrace& t) { return t.end - t.begin; });
  return std::move(*picked);
}

Result<ColdTrace> trace_cold_replay(const glm52::LayerRun& run, std::shared_ptr<const LaunchPlan> plan,
                                    const ColdTraceOptions& options, std::shared_ptr<const cuda::Context> context) {
  context = MEGARTP_TRY(context_or_first(std::move(context)));
  const cuda::Context::Scope scope(*context);
  const uint64_t num_bytes = plan->num_bytes();
  GraphSource source(std::move(plan), context);
  return ColdReplays(run, source, num_bytes, options, context).trace();
}

Result<ColdTrace> trace_cold_replay(const glm52::LayerRun& run, std::shared_ptr<const KernelPlan> plan,
                                    uint64_t num_bytes, const ColdTraceOptions& options,
                                    std::shared_ptr<const cuda::Context> context) {
  context = MEGARTP_TRY(context_or_first(std::move(context)));
  const cuda::Context::Scope scope(*context);
  MegaSource source(std::move(plan), context, options.is_cooperative);
  return ColdReplays(run, source, num_bytes, options, context).trace();
}

}  // namespace megartp::bench
