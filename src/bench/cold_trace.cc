#include "bench/cold_trace.h"

#include <fmt/format.h>

#include "backends/cuda_graph/cuda_graph_executable.h"
#include "bench/cuda_frame.h"
#include "bench/weight_copies.h"

namespace megartp::bench {
namespace {

using cuda_graph::CudaGraphExecutable;
using cuda_graph::KernelTracer;
using cuda_graph::LoadedCode;

// The plan on every copy, with and without the trace.
class ColdReplays {
 public:
  ColdReplays(const glm52::LayerRun& run, std::shared_ptr<const LaunchPlan> plan, const ColdTraceOptions& options,
              std::shared_ptr<const cuda::Context> context)
      : run_(run),
        plan_(std::move(plan)),
        options_(options),
        context_(std::move(context)),
        copies_(context_, run.weights, options.num_copies) {}

  Result<ColdTrace> trace() {
    frame_ = MEGARTP_TRY(CudaFrame::create(context_));
    const auto plain = MEGARTP_TRY(load(false));
    const auto traced = MEGARTP_TRY(load(true));
    KernelTracer tracer = MEGARTP_TRY(KernelTracer::create(plan_, traced));
    const Executables plain_executables = MEGARTP_TRY(make(plain));
    const Executables traced_executables = MEGARTP_TRY(make(traced));
    ColdTrace result;
    result.plain_us = MEGARTP_TRY(time(plain_executables, options_.num_samples, options_.num_warm_up));
    result.traced_us = MEGARTP_TRY(time(traced_executables, options_.num_samples, options_.num_warm_up));
    // The first copy has been driven out of L2 by the others.
    MEGARTP_TRY(tracer.clear());
    MEGARTP_TRY(time(traced_executables, 1, 0));
    result.trace = MEGARTP_TRY(tracer.read());
    MEGARTP_TRY(time(plain_executables, 1, 0));
    MEGARTP_TRY(compare(*plain_executables[0], *traced_executables[0]));
    return result;
  }

 private:
  using Executables = std::vector<std::unique_ptr<CudaGraphExecutable>>;

  Result<std::shared_ptr<const LoadedCode>> load(bool with_trace) const {
    codegen::CompileOptions compile = options_.compile;
    if (with_trace) compile.more_options.emplace_back(cuda_graph::kKernelTraceDefine);
    return LoadedCode::load(context_, *plan_, compile, {.has_module_per_kernel = with_trace});
  }

  Result<Executables> make(const std::shared_ptr<const LoadedCode>& code) {
    Executables list;
    for (uint32_t i = 0; i < options_.num_copies; ++i) {
      auto exec = MEGARTP_TRY(CudaGraphExecutable::create(plan_, code));
      MEGARTP_TRY(copies_.make_ready(*exec, i, run_.inputs));
      list.push_back(std::move(exec));
    }
    return list;
  }

  Result<Summary> time(const Executables& executables, size_t count, size_t warm_up) {
    const bool is_small = plan_->num_bytes() * options_.num_copies < 2 * context_->info().l2_bytes;
    return summarize(MEGARTP_TRY(frame_->time(
        count, warm_up,
        [&](size_t i, cuda::StreamHandle stream) { return executables[i % executables.size()]->run(stream); },
        is_small)));
  }

  Status compare(const CudaGraphExecutable& plain, const CudaGraphExecutable& traced) const {
    for (const TensorInfo& t : run_.graph.tensors()) {
      if (t.storage != Storage::kOutput && t.storage != Storage::kState) continue;
      const cuda::DeviceTensor* tensor = plain.tensors().find(t.name);
      if (tensor == nullptr || !tensor->is_used()) continue;
      std::vector<std::byte> want(tensor->num_bytes);
      std::vector<std::byte> got(tensor->num_bytes);
      MEGARTP_TRY(plain.download(t.name, want));
      MEGARTP_TRY(traced.download(t.name, got));
      if (want != got)
        return make_error(ErrorCode::kMismatch,
                          fmt::format("kernel trace: with the trace '{}' has other bits than without", t.name));
    }
    return {};
  }

  const glm52::LayerRun& run_;
  std::shared_ptr<const LaunchPlan> plan_;
  const ColdTraceOptions& options_;
  std::shared_ptr<const cuda::Context> context_;
  WeightCopies copies_;
  std::unique_ptr<CudaFrame> frame_;
};

}  // namespace

Result<ColdTrace> trace_cold_replay(const glm52::LayerRun& run, std::shared_ptr<const LaunchPlan> plan,
                                    const ColdTraceOptions& options, std::shared_ptr<const cuda::Context> context) {
  if (!context) context = MEGARTP_TRY(cuda::Context::open(*MEGARTP_TRY(cuda::driver())));
  const cuda::Context::Scope scope(*context);
  return ColdReplays(run, std::move(plan), options, context).trace();
}

}  // namespace megartp::bench
