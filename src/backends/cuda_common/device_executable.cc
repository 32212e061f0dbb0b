#include "backends/cuda_common/device_executable.h"

namespace megartp::cuda {

DeviceExecutable::~DeviceExecutable() {
  const Context::Scope current(*context_);
  const DeviceTensors gone = std::move(tensors_);
}

Status DeviceExecutable::bind(std::string_view tensor, DevicePtr address, size_t num_bytes) {
  const Context::Scope current(*context_);
  needs_refresh_ = true;
  return tensors_.bind(tensor, address, num_bytes);
}
Status DeviceExecutable::bind_packed(std::string_view tensor, DevicePtr address, size_t num_bytes) {
  needs_refresh_ = true;
  return tensors_.bind_packed(tensor, address, num_bytes);
}
Status DeviceExecutable::upload(std::string_view tensor, std::span<const std::byte> data) {
  const Context::Scope current(*context_);
  needs_refresh_ = true;
  return tensors_.upload(tensor, data);
}
Status DeviceExecutable::download(std::string_view tensor, std::span<std::byte> data) const {
  const Context::Scope current(*context_);
  return tensors_.download(tensor, data);
}
Status DeviceExecutable::allocate_unbound() {
  const Context::Scope current(*context_);
  needs_refresh_ = true;
  return tensors_.allocate_unbound();
}
Status DeviceExecutable::poison() {
  const Context::Scope current(*context_);
  return tensors_.poison();
}
DevicePtr DeviceExecutable::address(std::string_view tensor) const {
  const DeviceTensor* t = tensors_.find(tensor);
  return t == nullptr ? 0 : t->address;
}
DevicePtr DeviceExecutable::packed_address(std::string_view tensor) const {
  const DeviceTensor* t = tensors_.find(tensor);
  return t == nullptr ? 0 : t->packed;
}

}  // namespace megartp::cuda
