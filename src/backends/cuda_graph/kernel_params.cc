#include "backends/cuda_graph/kernel_params.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace megartp::cuda_graph {
namespace {

Result<int> map_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kF8E4M3: return cuda::kMapUint8;
    case DType::kBF16: return cuda::kMapBFloat16;
    case DType::kF32: return cuda::kMapFloat32;
    default: break;
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("no tensor map has elements {}", to_string(dtype)));
}

Result<int> map_swizzle(uint32_t bytes) {
  switch (bytes) {
    case 0: return cuda::kSwizzleNone;
    case 32: return cuda::kSwizzle32;
    case 64: return cuda::kSwizzle64;
    case 128: return cuda::kSwizzle128;
    default: break;
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("no tensor map swizzles {} bytes", bytes));
}

bool is_address(const DeviceParam& p) {
  return p.kind == DeviceParam::Kind::kPointer || p.kind == DeviceParam::Kind::kTensorMap;
}

}  // namespace

Result<cuda::TensorMap> encode_tensor_map(const cuda::DriverApi& api, const TensorMapSpec& spec,
                                          cuda::DevicePtr address) {
  if (spec.rank == 0 || spec.rank > spec.dims.size())
    return make_error(ErrorCode::kInvalidArgument, fmt::format("no tensor map has rank {}", spec.rank));
  constexpr std::array<uint32_t, 5> kElementStrides{1, 1, 1, 1, 1};
  const int type = MEGARTP_TRY(map_type(spec.element));
  const int swizzle = MEGARTP_TRY(map_swizzle(spec.swizzle_bytes));
  cuda::TensorMap map;
  MEGARTP_TRY(cuda::check(api,
                          api.tensor_map_encode(&map, type, spec.rank, reinterpret_cast<void*>(address),
                                                spec.dims.data(), spec.strides.data(), spec.box.data(),
                                                kElementStrides.data(), 0, swizzle, cuda::kL2Promotion256, 0),
                          "tensor_map_encode("));
  return map;
}

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

Status KernelParams::fill(const cuda::DriverApi& api, const DeviceKernel& kernel, const DeviceTensors& tensors) {
  auto* base = reinterpret_cast<std::byte*>(storage_.data());
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const DeviceParam& p = kernel.params[i];
    std::byte* place = base + layout_.offsets[i];
    if (!is_address(p)) {
      std::memcpy(place, &p.value, sizeof(p.value));
      continue;
    }
    const cuda::DevicePtr address = tensors.address(p);
    if (p.kind == DeviceParam::Kind::kPointer) {
      std::memcpy(place, &address, sizeof(address));
      continue;
    }
    const auto map = encode_tensor_map(api, p.map, address);
    if (!map) return tl::unexpected(Error(map.error()).with("kernel", kernel.name).with("parameter", p.name));
    std::memcpy(place, &*map, sizeof(*map));
  }
  return {};
}

}  // namespace megartp::cuda_graph
