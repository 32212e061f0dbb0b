#include "backends/cuda_graph/kernel_params.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda_common/tensor_map.h"

namespace megartp::cuda_graph {
namespace {

bool is_address(const DeviceParam& p) {
  return p.kind == DeviceParam::Kind::kPointer || p.kind == DeviceParam::Kind::kTensorMap;
}

}  // namespace

KernelParams::KernelParams(const DeviceKernel& kernel) : layout_(codegen::param_layout(kernel.params)) {
  storage_.resize((layout_.num_bytes + sizeof(cuda::TensorMap) - 1) / sizeof(cuda::TensorMap));
  pointer_ = storage_.data();
}

KernelParams::KernelParams(KernelParams&& o) noexcept
    : layout_(std::move(o.layout_)), storage_(std::move(o.storage_)), pointer_(storage_.data()) {}

std::span<const std::byte> KernelParams::bytes() const {
  return std::as_bytes(std::span(storage_)).first(layout_.num_bytes);
}

bool KernelParams::uses(const DeviceKernel& kernel, const std::vector<bool>& tensors) {
  return std::ranges::any_of(kernel.params, [&](const DeviceParam& p) { return is_address(p) && tensors[p.tensor]; });
}

Status KernelParams::fill(const cuda::DriverApi& api, const DeviceKernel& kernel, const cuda::DeviceTensors& tensors) {
  auto* base = reinterpret_cast<std::byte*>(storage_.data());
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const DeviceParam& p = kernel.params[i];
    std::byte* place = base + layout_.offsets[i];
    if (!is_address(p)) {
      std::memcpy(place, &p.value, sizeof(p.value));
      continue;
    }
    const cuda::DevicePtr address = tensors.address(p.tensor, p.layout);
    if (p.kind == DeviceParam::Kind::kPointer) {
      std::memcpy(place, &address, sizeof(address));
      continue;
    }
    const auto map = cuda::encode_tensor_map(api, p.map, address);
    if (!map) return tl::unexpected(Error(map.error()).with("kernel", kernel.name).with("parameter", p.name));
    std::memcpy(place, &*map, sizeof(*map));
  }
  return {};
}

}  // namespace megartp::cuda_graph
