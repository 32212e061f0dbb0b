// Element types of tensors. The names are those of the safetensors format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace megartp {

enum class DType : uint8_t { kF64, kF32, kBF16, kF8E4M3, kI64, kI32, kU8 };

constexpr std::size_t size_in_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16: return 2;
    case DType::kF8E4M3:
    case DType::kU8: return 1;
  }
  return 0;
}

// "F32", "BF16", "F8_E4M3", ...
std::string_view to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace megartp
