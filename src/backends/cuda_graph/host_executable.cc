#include "backends/cuda_graph/host_executable.h"

#include <cstring>
#include <map>

#include <fmt/format.h>

#include "backends/cuda_graph/cuda_graph_executable.h"

namespace megartp {
namespace {

using cuda_graph::CudaGraphExecutable;
using cuda_graph::LoadedCode;

class HostExecutable final : public Executable {
 public:
  HostExecutable(std::shared_ptr<const LaunchPlan> plan, std::shared_ptr<const cuda::Context> context,
                 std::unique_ptr<CudaGraphExecutable> executable, cuda::Stream stream)
      : plan_(std::move(plan)),
        context_(std::move(context)),
        executable_(std::move(executable)),
        stream_(std::move(stream)) {}
  HostExecutable(const HostExecutable&) = delete;
  HostExecutable& operator=(const HostExecutable&) = delete;
  ~HostExecutable() override {
    const cuda::Context::Scope scope(*context_);
    executable_.reset();
    stream_ = {};
  }

  Status bind(std::string_view tensor, void* data, size_t num_bytes) override {
    const ConcreteTensor* t = find(tensor);
    if (t == nullptr) return make_error(ErrorCode::kNotFound, fmt::format("bind: no tensor '{}'", tensor));
    // Checks name, class and size; memory is made for it.
    MEGARTP_TRY(executable_->upload(tensor, {static_cast<const std::byte*>(data), num_bytes}));
    if (t->storage != Storage::kWeight) bound_[t->name] = {static_cast<std::byte*>(data), num_bytes, t->storage};
    return {};
  }

  void* data(std::string_view tensor) const override {
    if (const auto it = bound_.find(tensor); it != bound_.end()) return it->second.data;
    // Intermediates stay on the device until somebody asks.
    const cuda_graph::DeviceTensor* d = executable_->tensors().find(tensor);
    if (d == nullptr || d->address == 0) return nullptr;
    std::vector<std::byte>& mirror = mirrors_[std::string(tensor)];
    mirror.resize(d->num_bytes);
    if (!executable_->download(tensor, mirror)) return nullptr;
    return mirror.data();
  }

  void poison() override {
    for (auto& [name, b] : bound_)
      if (b.storage == Storage::kOutput) std::memset(b.data, 0xff, b.num_bytes);
    poison_failed_ = !executable_->poison();
  }

  Result<RunStats> run() override {
    if (poison_failed_) return make_error(ErrorCode::kDeviceError, "the device memory could not be poisoned");
    for (const auto& [name, b] : bound_)
      if (b.storage != Storage::kOutput) MEGARTP_TRY(executable_->upload(name, {b.data, b.num_bytes}));
    MEGARTP_TRY(executable_->prepare());
    const cuda::Context::Scope scope(*context_);
    const auto begin = std::chrono::steady_clock::now();
    MEGARTP_TRY(executable_->run(stream_.get()));
    MEGARTP_CUDA_TRY(context_->api(), stream_synchronize(stream_.get()));
    RunStats stats;
    stats.wall_ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    for (auto& [name, b] : bound_)
      if (b.storage == Storage::kOutput || b.storage == Storage::kState)
        MEGARTP_TRY(executable_->download(name, {b.data, b.num_bytes}));
    return stats;
  }

 private:
  struct Bound {
    std::byte* data = nullptr;
    size_t num_bytes = 0;
    Storage storage = Storage::kRuntimeArg;
  };
  const ConcreteTensor* find(std::string_view name) const {
    for (TensorId id = 0; id < plan_->num_graph_tensors; ++id)
      if (plan_->tensors[id].name == name) return &plan_->tensors[id];
    return nullptr;
  }

  std::shared_ptr<const LaunchPlan> plan_;
  std::shared_ptr<const cuda::Context> context_;
  std::unique_ptr<CudaGraphExecutable> executable_;
  cuda::Stream stream_;
  std::map<std::string, Bound, std::less<>> bound_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> mirrors_;
  bool poison_failed_ = false;
};

}  // namespace

Result<std::unique_ptr<Executable>> prepare_cuda_graph(std::shared_ptr<const LaunchPlan> plan,
                                                       const HostLaunchOptions& options) {
  const cuda::DriverApi* api = MEGARTP_TRY(cuda::driver());
  const std::shared_ptr<const cuda::Context> context = MEGARTP_TRY(cuda::Context::open(*api, options.device));
  const cuda::Context::Scope scope(*context);
  const std::shared_ptr<const LoadedCode> code = MEGARTP_TRY(LoadedCode::load(context, *plan, options.compile));
  auto executable = MEGARTP_TRY(CudaGraphExecutable::create(plan, code));
  cuda::Stream stream = MEGARTP_TRY(cuda::make_stream(*api));
  return std::make_unique<HostExecutable>(std::move(plan), context, std::move(executable), std::move(stream));
}

}  // namespace megartp
