#include "backends/cuda_common/host_executable.h"

#include <chrono>
#include <cstring>

#include "backends/bindings.h"

namespace megartp {
namespace {

using cuda::DeviceExecutable;

class HostExecutable final : public Executable {
 public:
  HostExecutable(std::unique_ptr<DeviceExecutable> device, std::vector<BoundTensor> tensors, AlignedBytes mirror,
                 cuda::Stream stream)
      : device_(std::move(device)),
        bindings_(std::move(tensors)),
        mirror_(std::move(mirror)),
        stream_(std::move(stream)) {}
  ~HostExecutable() override {
    const cuda::Context::Scope current(device_->context());
    stream_ = {};
  }
  HostExecutable(const HostExecutable&) = delete;
  HostExecutable& operator=(const HostExecutable&) = delete;

  Status bind(std::string_view tensor, void* data, size_t num_bytes) override {
    MEGARTP_TRY(bindings_.bind(tensor, data, num_bytes));
    for (const BoundTensor& t : bindings_.tensors())
      if (t.name == tensor && t.storage == Storage::kWeight) return device_->upload(tensor, bytes_of(t));
    return {};
  }
  void* data(std::string_view tensor) const override { return bindings_.address(tensor); }
  void poison() override {
    bindings_.poison(std::byte{0xff});
    poison_status_ = device_->poison();
  }

  const FaultDump* fault() const override { return device_->fault(); }

  Result<RunStats> run() override {
    MEGARTP_TRY(bindings_.check_complete());
    MEGARTP_TRY(std::exchange(poison_status_, Status{}));
    for (const BoundTensor& t : bindings_.tensors())
      if (t.storage == Storage::kRuntimeArg || t.storage == Storage::kState)
        MEGARTP_TRY(device_->upload(t.name, bytes_of(t)));
    MEGARTP_TRY(device_->allocate_unbound());
    MEGARTP_TRY(device_->prepare());
    const auto start = std::chrono::steady_clock::now();
    MEGARTP_TRY(device_->run(stream_.get()));
    MEGARTP_TRY(synchronize());
    MEGARTP_TRY(device_->finish());
    RunStats stats;
    stats.wall_ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    for (const BoundTensor& t : bindings_.tensors()) {
      const bool is_read_only = t.storage == Storage::kRuntimeArg || t.storage == Storage::kWeight;
      if (!is_read_only && device_->address(t.name) != 0) MEGARTP_TRY(device_->download(t.name, bytes_of(t)));
    }
    return stats;
  }

 private:
  static std::span<std::byte> bytes_of(const BoundTensor& t) {
    return {static_cast<std::byte*>(t.address), t.num_bytes};
  }
  Status synchronize() const {
    const cuda::Context::Scope current(device_->context());
    MEGARTP_CUDA_TRY(device_->api(), stream_synchronize(stream_.get()));
    return {};
  }

  std::unique_ptr<DeviceExecutable> device_;
  Bindings bindings_;
  AlignedBytes mirror_;  // of activations
  cuda::Stream stream_;
  Status poison_status_;
};

}  // namespace

Result<std::unique_ptr<Executable>> make_host_executable(std::unique_ptr<DeviceExecutable> device) {
  constexpr size_t kAlignment = 64;
  std::vector<BoundTensor> tensors;
  size_t mirror_bytes = 0;
  for (const cuda::TensorUse& use : device->tensors().uses()) {
    if (use.is_private) continue;
    const ConcreteTensor& t = use.tensor;
    const cuda::DeviceTensor* on_device = device->tensors().find(t.name);
    tensors.push_back({t.name, t.dtype, t.storage, on_device->num_bytes, on_device->is_external, nullptr});
    if (!on_device->is_external) mirror_bytes += (on_device->num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  AlignedBytes mirror(mirror_bytes);
  std::byte* next = mirror.get();
  for (BoundTensor& t : tensors) {
    if (t.external) continue;
    t.address = next;
    next += (t.num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  const cuda::Context::Scope current(device->context());
  cuda::Stream stream = MEGARTP_TRY(cuda::make_stream(device->api()));
  return std::make_unique<HostExecutable>(std::move(device), std::move(tensors), std::move(mirror), std::move(stream));
}

}  // namespace megartp
