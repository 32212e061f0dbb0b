#include "backends/cuda_common/device_tensors.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/cuda_common/weight_packing.h"

namespace megartp::cuda {
namespace {

constexpr size_t kArenaAlignment = 256;
constexpr size_t kBindAlignment = 16;  // of what copies and tensor maps take

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

tl::unexpected<Error> bad_tensor(std::string_view action, const ConcreteTensor& t, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {} '{}' {}", action, to_string(t.storage), t.name, what));
}

}  // namespace

Status check_packable(const ConcreteTensor& t, std::string_view user) {
  if (t.storage == Storage::kWeight && t.dims.size() == 2 && size_in_bytes(t.dtype) == 1) return {};
  return make_error(ErrorCode::kInternal,
                    fmt::format("kernel '{}' wants tensor '{}' {} {} packed; only FP8 weights [N, K] are", user, t.name,
                                to_string(t.dtype), to_string(t.dims)));
}

Result<DeviceTensors> DeviceTensors::create(const DriverApi& api, std::vector<TensorUse> uses) {
  DeviceTensors tensors(api, std::move(uses));
  tensors.measure();
  MEGARTP_TRY(tensors.allocate_arena());
  return tensors;
}

void DeviceTensors::measure() {
  tensors_.resize(uses_.size());
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const TensorUse& use = uses_[id];
    DeviceTensor& d = tensors_[id];
    d.num_bytes = size_in_bytes(use.tensor.dtype);
    for (const int64_t dim : use.tensor.dims) d.num_bytes *= static_cast<size_t>(dim);
    d.is_external = use.is_external();
    d.is_used_plain = use.is_used_plain;
    if (use.is_packed) d.num_packed_bytes = packed_weight_bytes(use.tensor.dims[0], use.tensor.dims[1]);
    by_name_.emplace(use.tensor.name, id);
  }
}

Status DeviceTensors::allocate_arena() {
  size_t total = 0;
  std::vector<size_t> offsets(tensors_.size());
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    if (tensors_[id].is_external) continue;
    const bool is_placed = uses_[id].arena_offset != kAnyOffset;
    offsets[id] = is_placed ? uses_[id].arena_offset : total;
    total = std::max(total, offsets[id] + round_up(tensors_[id].num_bytes, kArenaAlignment));
  }
  arena_ = MEGARTP_TRY(DeviceBuffer::allocate(*api_, total));
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    DeviceTensor& d = tensors_[id];
    const TensorUse& use = uses_[id];
    if (d.is_external) continue;
    d.address = arena_.get() + offsets[id];
    if (use.is_zeroed) MEGARTP_CUDA_TRY(*api_, memset_d8_async(d.address, 0, d.num_bytes, nullptr));
    if (!use.words.empty()) MEGARTP_CUDA_TRY(*api_, memcpy_htod(d.address, use.words.data(), d.num_bytes));
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
  const ConcreteTensor& t = uses_[it->second].tensor;
  const DeviceTensor& d = tensors_[it->second];
  if (!d.is_external)
    return bad_tensor(action, t, "lives in the workspace; only arguments, weights, states and outputs are bound");
  if (num_bytes != d.num_bytes)
    return bad_tensor(
        action, t,
        fmt::format("{} {} needs {} bytes, got {}", to_string(t.dtype), to_string(t.dims), d.num_bytes, num_bytes));
  return it->second;
}

void DeviceTensors::move_to(DevicePtr& place, DevicePtr address, DeviceTensor& tensor) {
  if (place == address) return;
  place = address;
  tensor.has_changed = true;
}

Status DeviceTensors::bind(std::string_view name, DevicePtr address, size_t num_bytes) {
  const TensorId id = MEGARTP_TRY(find_external(name, "bind", num_bytes));
  DeviceTensor& d = tensors_[id];
  if (address == 0 || address % kBindAlignment != 0)
    return bad_tensor("bind", uses_[id].tensor,
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

Status DeviceTensors::bind_packed(std::string_view name, DevicePtr address, size_t num_bytes) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end() || tensors_[it->second].num_packed_bytes != num_bytes)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("bind_packed: no kernel takes a tensor '{}' packed to {} bytes", name, num_bytes));
  DeviceTensor& d = tensors_[it->second];
  if (address == 0 || address % kBindAlignment != 0)
    return bad_tensor("bind_packed", uses_[it->second].tensor, "got a null or misaligned address");
  move_to(d.packed, address, d);
  d.own_packed = {};
  return {};
}

Status DeviceTensors::pack(TensorId id, std::span<const std::byte> data) {
  DeviceTensor& d = tensors_[id];
  const std::vector<int64_t>& dims = uses_[id].tensor.dims;
  std::vector<std::byte> packed(d.num_packed_bytes);
  MEGARTP_TRY(pack_weight(data, dims[0], dims[1], packed));
  if (d.own_packed.size() == 0) {
    d.own_packed = MEGARTP_TRY(DeviceBuffer::allocate(*api_, d.num_packed_bytes));
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
    d.own = MEGARTP_TRY(DeviceBuffer::allocate(*api_, d.num_bytes));
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
    auto buffer = DeviceBuffer::allocate(*api_, d.num_bytes);
    if (!buffer) return tl::unexpected(std::move(buffer).error().with("tensor", uses_[id].tensor.name));
    d.own = std::move(*buffer);
    move_to(d.address, d.own.get(), d);
    MEGARTP_CUDA_TRY(*api_, memset_d8_async(d.address, 0, d.num_bytes, nullptr));
  }
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

Status DeviceTensors::poison() const {
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const DeviceTensor& d = tensors_[id];
    const bool is_written = !d.is_external || uses_[id].tensor.storage == Storage::kOutput;
    const bool keeps_its_contents = uses_[id].is_zeroed || !uses_[id].words.empty();
    if (is_written && !keeps_its_contents && d.address != 0)
      MEGARTP_CUDA_TRY(*api_, memset_d8_async(d.address, 0xff, d.num_bytes, nullptr));
  }
  MEGARTP_CUDA_TRY(*api_, ctx_synchronize());
  return {};
}

Status DeviceTensors::check_complete() const {
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    const DeviceTensor& d = tensors_[id];
    if ((d.is_used_plain && d.address == 0) || (d.num_packed_bytes > 0 && d.packed == 0))
      return bad_tensor("prepare", uses_[id].tensor, "is not bound");
  }
  return {};
}

DevicePtr DeviceTensors::address(TensorId id, WeightLayout layout) const {
  return layout == WeightLayout::kCheckpoint ? tensors_[id].address : tensors_[id].packed;
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

}  // namespace megartp::cuda
