#include "backends/cuda_mega/mega_executable.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/cuda_mega/mega_fault.h"
#include "backends/cuda_mega/mega_params.h"
#include "verify/plan/plan_proof.h"

namespace megartp::cuda_mega {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kCounterBytes = abi::kMegaCounterStride * sizeof(uint64_t);

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Status check_resident(const KernelPlan& plan, const MegaCode& code) {
  if (plan.num_workers <= code.max_workers()) return {};
  const cuda::DeviceInfo& info = code.context()->info();
  return make_error(ErrorCode::kOutOfResources,
                    fmt::format("mega: the plan has {} workers, but only {} CTAs of the kernel are resident at once on "
                                "{} ({} SMs): they wait for each other, so all must be",
                                plan.num_workers, code.max_workers(), info.name, info.num_sms));
}

}  // namespace

MegaExecutable::MegaExecutable(std::shared_ptr<const KernelPlan> plan, std::shared_ptr<const MegaCode> code,
                               const MegaRunOptions& options, MegaImage image, cuda::DeviceTensors tensors)
    : DeviceExecutable(code->context(), std::move(tensors)),
      plan_(std::move(plan)),
      code_(std::move(code)),
      options_(options),
      image_(std::move(image)) {
  const bool has_fault = options_.lose_signals_of != abi::kNoTask || options_.lose_results_of != abi::kNoTask;
  if (options_.deadline.count() == 0) options_.deadline = has_fault ? kInjectedDeadline : kDeadline;
}

Result<std::unique_ptr<MegaExecutable>> MegaExecutable::create(std::shared_ptr<const KernelPlan> plan,
                                                               std::shared_ptr<const MegaCode> code,
                                                               const MegaRunOptions& options) {
  MEGARTP_TRY(check_plan(*plan));
  MEGARTP_TRY(check_resident(*plan, *code));
  MEGARTP_TRY(require_proved(*plan));
  MegaImage image = MEGARTP_TRY(make_mega_image(*plan));
  MEGARTP_TRY(code->check_has(image.opcodes));
  const cuda::Context::Scope current(*code->context());
  cuda::DeviceTensors tensors = MEGARTP_TRY(cuda::DeviceTensors::create(code->context()->api(), image.tensors));
  std::unique_ptr<MegaExecutable> exec(
      new MegaExecutable(std::move(plan), std::move(code), options, std::move(image), std::move(tensors)));
  MEGARTP_TRY(exec->allocate());
  return exec;
}

MegaExecutable::~MegaExecutable() {
  const cuda::Context::Scope current(context());
  exec_ = {};
  graph_ = {};
  state_ = {};
  records_ = {};
  trace_ = {};
}

Status MegaExecutable::allocate() {
  const size_t num_workers = plan_->num_workers;
  epochs_at_ = aligned(plan_->events.size() * kCounterBytes);
  faults_at_ = epochs_at_ + aligned(num_workers * kCounterBytes);
  stop_at_ = faults_at_ + aligned(num_workers * sizeof(abi::FaultRecord));
  state_ = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api(), stop_at_ + kAlignment));
  const size_t record_bytes = image_.records.size() * sizeof(abi::MegaRecord);
  records_ = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api(), record_bytes));
  MEGARTP_CUDA_TRY(api(), memcpy_htod(records_.get(), image_.records.data(), record_bytes));
  image_.records = {};
  fill_static_params(*plan_, image_, params_);
  params_.records = reinterpret_cast<const abi::MegaRecord*>(records_.get());
  params_.counters = reinterpret_cast<uint64_t*>(state_.get());
  params_.epochs = reinterpret_cast<uint64_t*>(state_.get() + epochs_at_);
  params_.faults = reinterpret_cast<void*>(state_.get() + faults_at_);
  params_.stop = reinterpret_cast<uint32_t*>(state_.get() + stop_at_);
  params_.deadline_ns = static_cast<uint64_t>(std::chrono::nanoseconds(options_.deadline).count());
  params_.lose_signals_of = options_.lose_signals_of;
  params_.lose_results_of = options_.lose_results_of;
  if (options_.is_empty) params_.depth = 0;
  if (options_.with_trace) {
    const size_t trace_bytes = num_workers * plan_->queue_depth * sizeof(abi::MegaTraceRecord);
    trace_ = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api(), trace_bytes));
    MEGARTP_CUDA_TRY(api(), memset_d8_async(trace_.get(), 0, trace_bytes, nullptr));
    params_.trace = reinterpret_cast<void*>(trace_.get());
  }
  return reset();
}

Status MegaExecutable::reset() {
  MEGARTP_CUDA_TRY(api(), memset_d8_async(state_.get(), 0, state_.size(), nullptr));
  MEGARTP_CUDA_TRY(api(), ctx_synchronize());
  return {};
}

cuda::KernelNodeParams MegaExecutable::node_params() {
  cuda::KernelNodeParams node;
  node.function = code_->function();
  node.grid[0] = plan_->num_workers;
  node.block[0] = abi::kMegaThreads;
  node.dynamic_smem_bytes = abi::kMegaSmemBytes;
  node.params = &params_pointer_;
  return node;
}

Status MegaExecutable::prepare() {
  const cuda::Context::Scope current(context());
  MEGARTP_TRY(tensors_.check_complete());
  MEGARTP_TRY(refresh());
  if (!exec_) MEGARTP_TRY(build_graph());
  return {};
}

Status MegaExecutable::refresh() {
  if (!needs_refresh_) return {};
  const std::vector<bool> changed = tensors_.take_changes();
  if (std::ranges::find(changed, true) != changed.end()) {
    MEGARTP_TRY(fill_addresses(api(), image_, tensors_, params_));
    if (exec_) {
      const cuda::KernelNodeParams node = node_params();
      MEGARTP_CUDA_TRY(api(), graph_exec_kernel_node_set_params(exec_.get(), node_, &node));
    }
  }
  needs_refresh_ = false;
  return {};
}

Status MegaExecutable::build_graph() {
  graph_ = MEGARTP_TRY(cuda::make_graph(api()));
  const cuda::KernelNodeParams node = node_params();
  MEGARTP_CUDA_TRY(api(), graph_add_kernel_node(&node_, graph_.get(), nullptr, 0, &node));
  if (options_.is_cooperative) {
    cuda::LaunchAttributeValue value{};
    value.cooperative = 1;
    MEGARTP_CUDA_TRY(api(), graph_kernel_node_set_attribute(node_, cuda::kLaunchCooperative, &value));
  }
  cuda::GraphExec exec = MEGARTP_TRY(cuda::instantiate(api(), graph_.get()));
  // Else the first launch would put it on the device, and allocate there.
  MEGARTP_CUDA_TRY(api(), graph_upload(exec.get(), nullptr));
  MEGARTP_CUDA_TRY(api(), ctx_synchronize());
  exec_ = std::move(exec);
  return {};
}

Status MegaExecutable::run(cuda::StreamHandle stream) {
  if (needs_refresh_ || !exec_) MEGARTP_TRY(prepare());
  const cuda::Context::Scope current(context());
  MEGARTP_CUDA_TRY(api(), graph_launch(exec_.get(), stream));
  return {};
}

Status MegaExecutable::launch_on_stream(cuda::StreamHandle stream) {
  const cuda::Context::Scope current(context());
  cuda::LaunchAttribute attribute;
  attribute.id = cuda::kLaunchCooperative;
  attribute.value.cooperative = options_.is_cooperative ? 1 : 0;
  cuda::LaunchConfig config;
  config.grid[0] = plan_->num_workers;
  config.block[0] = abi::kMegaThreads;
  config.dynamic_smem_bytes = abi::kMegaSmemBytes;
  config.stream = stream;
  config.attributes = &attribute;
  config.num_attributes = 1;
  MEGARTP_CUDA_TRY(api(), launch_kernel(&config, code_->function(), &params_pointer_, nullptr));
  return {};
}

Status MegaExecutable::finish() {
  fault_ = {};
  const cuda::Context::Scope current(context());
  uint32_t stop = 0;
  MEGARTP_CUDA_TRY(api(), memcpy_dtoh(&stop, state_.get() + stop_at_, sizeof(stop)));
  if (stop == 0) return {};
  // Those who have yet to leave.
  MEGARTP_CUDA_TRY(api(), ctx_synchronize());
  std::vector<abi::FaultRecord> records(plan_->num_workers);
  MEGARTP_CUDA_TRY(api(), memcpy_dtoh(records.data(), state_.get() + faults_at_, records.size() * sizeof(records[0])));
  std::vector<uint64_t> padded(size_t{plan_->num_workers} * abi::kMegaCounterStride);
  MEGARTP_CUDA_TRY(api(), memcpy_dtoh(padded.data(), state_.get() + epochs_at_, padded.size() * sizeof(padded[0])));
  std::vector<uint64_t> epochs(plan_->num_workers);
  for (size_t w = 0; w < epochs.size(); ++w) epochs[w] = padded[w * abi::kMegaCounterStride];
  MEGARTP_TRY(reset());
  MegaFault fault = describe_fault(*plan_, records, epochs, options_.deadline);
  fault_ = std::move(fault.dump);
  return tl::unexpected(std::move(fault.error));
}

Result<std::vector<abi::MegaTraceRecord>> MegaExecutable::trace() const {
  if (trace_.size() == 0) return make_error(ErrorCode::kInvalidArgument, "mega: prepared without a trace");
  const cuda::Context::Scope current(context());
  std::vector<abi::MegaTraceRecord> records(size_t{plan_->num_workers} * plan_->queue_depth);
  MEGARTP_CUDA_TRY(api(), ctx_synchronize());
  MEGARTP_CUDA_TRY(api(), memcpy_dtoh(records.data(), trace_.get(), trace_.size()));
  return records;
}

}  // namespace megartp::cuda_mega
