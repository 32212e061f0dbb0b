// CudaGraphExecutable::launch_on_streams: the plan as launches on streams, for callers who capture.
#include <algorithm>
#include <array>

#include "backends/cuda_graph/cuda_graph_executable.h"

namespace megartp::cuda_graph {

Status CudaGraphExecutable::make_streams() {
  streams_plan_ = MEGARTP_TRY(plan_streams(static_cast<uint32_t>(params_.size()), plan_->edges));
  streams_.clear();
  for (uint32_t s = 0; s < streams_plan_.num_streams; ++s) streams_.push_back(MEGARTP_TRY(cuda::make_stream(api())));
  fork_ = MEGARTP_TRY(cuda::make_event(api()));
  completions_.resize(params_.size());
  triggers_.resize(params_.size());
  std::vector<uint32_t> last(streams_.size());
  for (const StreamStep& step : streams_plan_.steps) {
    if (step.records_completion) completions_[step.kernel] = MEGARTP_TRY(cuda::make_event(api()));
    if (step.records_trigger) triggers_[step.kernel] = MEGARTP_TRY(cuda::make_event(api()));
    last[step.stream] = step.kernel;
  }
  // The join waits for the last kernel of every stream.
  for (const uint32_t kernel : last) {
    streams_plan_.steps[kernel].records_completion = true;
    if (!completions_[kernel]) completions_[kernel] = MEGARTP_TRY(cuda::make_event(api()));
  }
  has_streams_ = true;
  return {};
}

Status CudaGraphExecutable::launch_step(const StreamStep& step) {
  const cuda::StreamHandle stream = streams_[step.stream].get();
  if (step.forks) MEGARTP_CUDA_TRY(api(), stream_wait_event(stream, fork_.get(), 0));
  for (const uint32_t k : step.full_waits) MEGARTP_CUDA_TRY(api(), stream_wait_event(stream, completions_[k].get(), 0));
  for (const uint32_t k : step.programmatic_waits)
    MEGARTP_CUDA_TRY(api(), stream_wait_event(stream, triggers_[k].get(), 0));

  std::array<cuda::LaunchAttribute, 4> attributes{};
  unsigned count = 0;
  attributes[count].id = cuda::kLaunchPriority;
  attributes[count++].value.priority = clamped_priority(step.kernel);
  const DeviceKernel& kernel = plan_->kernels[step.kernel].kernel;
  if (kernel.cluster > 1) {
    attributes[count].id = cuda::kLaunchClusterDims;
    attributes[count++].value.cluster = {kernel.cluster, 1, 1};
  }
  if (step.follows_programmatically) {
    attributes[count].id = cuda::kLaunchProgrammaticStream;
    attributes[count++].value.programmatic_stream = 1;
  }
  if (step.records_trigger) {
    attributes[count].id = cuda::kLaunchProgrammaticEvent;
    attributes[count++].value.programmatic_event = {triggers_[step.kernel].get(), 0, 0};
  }
  const cuda::KernelNodeParams node = node_params(step.kernel);
  cuda::LaunchConfig config;
  std::copy_n(node.grid, 3, config.grid);
  std::copy_n(node.block, 3, config.block);
  config.dynamic_smem_bytes = node.dynamic_smem_bytes;
  config.stream = stream;
  config.attributes = attributes.data();
  config.num_attributes = count;
  Status ok = cuda::check(api(), api().launch_kernel(&config, node.function, node.params, nullptr), "launch_kernel(");
  if (!ok) return tl::unexpected(std::move(ok).error().with("kernel", plan_->kernels[step.kernel].name));
  if (step.records_completion) MEGARTP_CUDA_TRY(api(), event_record(completions_[step.kernel].get(), stream, 0));
  return {};
}

Status CudaGraphExecutable::launch_on_streams(cuda::StreamHandle stream) {
  if (needs_refresh_ || !has_streams_)
    return make_error(ErrorCode::kInvalidArgument,
                      "launch_on_streams: call prepare() first: nothing is built yet, or addresses have changed");
  const cuda::Context::Scope current(code_->context());
  MEGARTP_CUDA_TRY(api(), event_record(fork_.get(), stream, 0));
  for (const StreamStep& step : streams_plan_.steps) MEGARTP_TRY(launch_step(step));
  std::vector<bool> is_joined(streams_.size(), false);
  for (auto step = streams_plan_.steps.rbegin(); step != streams_plan_.steps.rend(); ++step) {
    if (is_joined[step->stream]) continue;
    is_joined[step->stream] = true;
    MEGARTP_CUDA_TRY(api(), stream_wait_event(stream, completions_[step->kernel].get(), 0));
  }
  return {};
}

}  // namespace megartp::cuda_graph
