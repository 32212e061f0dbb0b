#include "backends/cuda_common/tensor_map.h"

#include <array>

#include <fmt/format.h>

namespace megartp::cuda {
namespace {

Result<int> map_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kF8E4M3: return kMapUint8;
    case DType::kBF16: return kMapBFloat16;
    case DType::kF32: return kMapFloat32;
    default: break;
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("no tensor map has elements {}", to_string(dtype)));
}

Result<int> map_swizzle(uint32_t bytes) {
  switch (bytes) {
    case 0: return kSwizzleNone;
    case 32: return kSwizzle32;
    case 64: return kSwizzle64;
    case 128: return kSwizzle128;
    default: break;
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("no tensor map swizzles {} bytes", bytes));
}

}  // namespace

Result<TensorMap> encode_tensor_map(const DriverApi& api, const TensorMapSpec& spec, DevicePtr address) {
  if (spec.rank == 0 || spec.rank > spec.dims.size())
    return make_error(ErrorCode::kInvalidArgument, fmt::format("no tensor map has rank {}", spec.rank));
  constexpr std::array<uint32_t, 5> kElementStrides{1, 1, 1, 1, 1};
  const int type = MEGARTP_TRY(map_type(spec.element));
  const int swizzle = MEGARTP_TRY(map_swizzle(spec.swizzle_bytes));
  TensorMap map;
  MEGARTP_TRY(check(api,
                    api.tensor_map_encode(&map, type, spec.rank, reinterpret_cast<void*>(address), spec.dims.data(),
                                          spec.strides.data(), spec.box.data(), kElementStrides.data(), 0, swizzle,
                                          kL2Promotion256, 0),
                    "tensor_map_encode("));
  return map;
}

}  // namespace megartp::cuda
