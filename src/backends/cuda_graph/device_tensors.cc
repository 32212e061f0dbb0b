#include "backends/cuda_graph/device_tensors.h"

#include <fmt/format.h>

#include "backends/cuda_graph/weight_packing.h"

namespace megartp::cuda_graph {
namespace {

constexpr size_t kArenaAlignment = 256;
constexpr size_t kBindAlignment = 16;  // of what copies and tensor maps take

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

tl::unexpected<Error> bad_tensor(std::string_view action, const ConcreteTensor& t, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {} '{}' {}", action, to_string(t.storage), t.name, what));
}

}  // namespace

Result<DeviceTensors> DeviceTensors::create(const cuda::DriverApi& api, const LaunchPlan& plan) {
  DeviceTensors tensors(api, plan);
  MEGARTP_TRY(tensors.measure());
  MEGARTP_TRY(tensors.allocate_arena());
  return tensors;
}

Status DeviceTensors::measure() {
  tensors_.resize(plan_->tensors.size());
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const ConcreteTensor& t = plan_->tensors[id];
    DeviceTensor& d = tensors_[id];
    d.num_bytes = size_in_bytes(t.dtype);
    for (const int64_t dim : t.dims) d.num_bytes *= static_cast<size_t>(dim);
    d.is_external = id < plan_->num_graph_tensors && t.storage != Storage::kActivation;
    by_name_.emplace(t.name, id);
  }
  for (const LaunchKernel& k : plan_->kernels) {
    for (const DeviceParam& p : k.kernel.params) {
      if (p.kind != DeviceParam::Kind::kPointer && p.kind != DeviceParam::Kind::kTensorMap) continue;
      const ConcreteTensor& t = plan_->tensors[p.tensor];
      DeviceTensor& d = tensors_[p.tensor];
      if (p.layout == WeightLayout::kCheckpoint) {
        d.is_used_plain = true;
        continue;
      }
      if (t.storage != Storage::kWeight || t.dims.size() != 2 || size_in_bytes(t.dtype) != 1)
        return make_error(ErrorCode::kInternal,
                          fmt::format("kernel '{}' wants tensor '{}' {} {} packed; only FP8 weights [N, K] are", k.name,
                                      t.name, to_string(t.dtype), to_string(t.dims)));
      d.num_packed_bytes = packed_weight_bytes(t.dims[0], t.dims[1]);
    }
  }
  return {};
}

Status DeviceTensors::allocate_arena() {
  size_t total = 0;
  for (const DeviceTensor& d : tensors_)
    if (!d.is_external) total += round_up(d.num_bytes, kArenaAlignment);
  arena_ = MEGARTP_TRY(cuda::DeviceBuffer::allocate(*api_, total));
  cuda::DevicePtr next = arena_.get();
  for (DeviceTensor& d : tensors_) {
    if (d.is_external) continue;
    d.address = next;
    next += round_up(d.num_bytes, kArenaAlignment);
  }
  for (const LaunchWorkspace& w : plan_->workspaces) {
    const DeviceTensor& d = tensors_[w.tensor];
    if (w.zeroed) MEGARTP_CUDA_TRY(*api_, memset_d8_async(d.address, 0, d.num_bytes, nullptr));
    if (!w.words.empty()) MEGARTP_CUDA_TRY(*api_, memcpy_htod(d.address, w.words.data(), d.num_bytes));
  }
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

const DeviceTensor* DeviceTensors::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Result<TensorId> DeviceTensors::find_external(std::string_view name, std::string_view action, size_t num_bytes) const {
  const auto it = by_name_.find(name);
  if (it == by_name_.end())
    return make_error(ErrorCode::kNotFound, fmt::format("{}: the graph has no tensor '{}'", action, name));
  const ConcreteTensor& t = plan_->tensors[it->second];
  const DeviceTensor& d = tensors_[it->second];
  if (!d.is_external)
    return bad_tensor(action, t, "lives in the workspace; only arguments, weights, states and outputs are bound");
  if (num_bytes != d.num_bytes)
    return bad_tensor(
        action, t,
        fmt::format("{} {} needs {} bytes, got {}", to_string(t.dtype), to_string(t.dims), d.num_bytes, num_bytes));
  return it->second;
}

void DeviceTensors::move_to(cuda::DevicePtr& place, cuda::DevicePtr address, DeviceTensor& tensor) {
  if (place == address) return;
  place = address;
  tensor.has_changed = true;
}

Status DeviceTensors::bind(std::string_view name, cuda::DevicePtr address, size_t num_bytes) {
  const TensorId id = MEGARTP_TRY(find_external(name, "bind", num_bytes));
  DeviceTensor& d = tensors_[id];
  if (address == 0 || address % kBindAlignment != 0)
    return bad_tensor("bind", plan_->tensors[id],
                      address == 0 ? "got a null address" : "got an address that is not aligned to 16 bytes");
  if (d.num_packed_bytes > 0) {
    std::vector<std::byte> host(num_bytes);
    MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
    MEGARTP_CUDA_TRY(*api_, memcpy_dtoh(host.data(), address, num_bytes));
    MEGARTP_TRY(pack(id, host));
  }
  move_to(d.address, address, d);
  d.own = {};
  return {};
}

Status DeviceTensors::bind_packed(std::string_view name, cuda::DevicePtr address, size_t num_bytes) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end() || tensors_[it->second].num_packed_bytes != num_bytes)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("bind_packed: no kernel takes a tensor '{}' packed to {} bytes", name, num_bytes));
  DeviceTensor& d = tensors_[it->second];
  if (address == 0 || address % kBindAlignment != 0)
    return bad_tensor("bind_packed", plan_->tensors[it->second], "got a null or misaligned address");
  move_to(d.packed, address, d);
  d.own_packed = {};
  return {};
}

Status DeviceTensors::pack(TensorId id, std::span<const std::byte> data) {
  DeviceTensor& d = tensors_[id];
  const std::vector<int64_t>& dims = plan_->tensors[id].dims;
  std::vector<std::byte> packed(d.num_packed_bytes);
  MEGARTP_TRY(pack_weight(data, dims[0], dims[1], packed));
  if (d.own_packed.size() == 0) {
    d.own_packed = MEGARTP_TRY(cuda::DeviceBuffer::allocate(*api_, d.num_packed_bytes));
    move_to(d.packed, d.own_packed.get(), d);
  }
  MEGARTP_CUDA_TRY(*api_, memcpy_htod(d.packed, packed.data(), packed.size()));
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

Status DeviceTensors::upload(std::string_view name, std::span<const std::byte> data) {
  const TensorId id = MEGARTP_TRY(find_external(name, "upload", data.size()));
  DeviceTensor& d = tensors_[id];
  if (d.num_packed_bytes > 0) MEGARTP_TRY(pack(id, data));
  if (d.num_packed_bytes > 0 && !d.is_used_plain) return {};
  if (d.address == 0) {
    d.own = MEGARTP_TRY(cuda::DeviceBuffer::allocate(*api_, d.num_bytes));
    move_to(d.address, d.own.get(), d);
  }
  // The copy may still be on its way when the call returns, and streams of others do not wait for it.
  MEGARTP_CUDA_TRY(*api_, memcpy_htod(d.address, data.data(), data.size()));
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

Status DeviceTensors::download(std::string_view name, std::span<std::byte> data) const {
  const DeviceTensor* d = find(name);
  if (d == nullptr || d->address == 0)
    return make_error(ErrorCode::kNotFound,
                      fmt::format("download: tensor '{}' {}", name, d == nullptr ? "does not exist" : "has no memory"));
  if (data.size() != d->num_bytes)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("download: tensor '{}' has {} bytes, the buffer {}",
                                                               name, d->num_bytes, data.size()));
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  MEGARTP_CUDA_TRY(*api_, memcpy_dtoh(data.data(), d->address, data.size()));
  return {};
}

Status DeviceTensors::allocate_unbound() {
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    DeviceTensor& d = tensors_[id];
    if (!d.is_external || !d.is_used_plain || d.address != 0) continue;
    auto buffer = cuda::DeviceBuffer::allocate(*api_, d.num_bytes);
    if (!buffer) return tl::unexpected(std::move(buffer).error().with("tensor", plan_->tensors[id].name));
    d.own = std::move(*buffer);
    move_to(d.address, d.own.get(), d);
    MEGARTP_CUDA_TRY(*api_, memset_d8_async(d.address, 0, d.num_bytes, nullptr));
  }
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

Status DeviceTensors::poison() const {
  std::vector<bool> keeps_its_contents(tensors_.size(), false);
  for (const LaunchWorkspace& w : plan_->workspaces) keeps_its_contents[w.tensor] = w.zeroed || !w.words.empty();
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const DeviceTensor& d = tensors_[id];
    const bool is_written = !d.is_external || plan_->tensors[id].storage == Storage::kOutput;
    if (is_written && !keeps_its_contents[id] && d.address != 0)
      MEGARTP_CUDA_TRY(*api_, memset_d8_async(d.address, 0xff, d.num_bytes, nullptr));
  }
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

Status DeviceTensors::check_complete() const {
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const DeviceTensor& d = tensors_[id];
    if ((d.is_used_plain && d.address == 0) || (d.num_packed_bytes > 0 && d.packed == 0))
      return bad_tensor("prepare", plan_->tensors[id], "is not bound");
  }
  return {};
}

cuda::DevicePtr DeviceTensors::address(const DeviceParam& param) const {
  const DeviceTensor& d = tensors_[param.tensor];
  return param.layout == WeightLayout::kCheckpoint ? d.address : d.packed;
}

std::vector<bool> DeviceTensors::take_changes() {
  std::vector<bool> changed(tensors_.size());
  for (TensorId id = 0; id < tensors_.size(); ++id) changed[id] = std::exchange(tensors_[id].has_changed, false);
  return changed;
}

size_t DeviceTensors::num_owned_bytes() const {
  size_t total = arena_.size();
  for (const DeviceTensor& d : tensors_) total += d.own.size() + d.own_packed.size();
  return total;
}

}  // namespace megartp::cuda_graph
