#include "megartp/dtype.h"

#include <array>
#include <utility>

namespace megartp {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 7> kNames{{{DType::kF64, "F64"},
                                                                    {DType::kF32, "F32"},
                                                                    {DType::kBF16, "BF16"},
                                                                    {DType::kF8E4M3, "F8_E4M3"},
                                                                    {DType::kI64, "I64"},
                                                                    {DType::kI32, "I32"},
                                                                    {DType::kU8, "U8"}}};
}  // namespace

std::string_view to_string(DType dtype) {
  for (const auto& [d, n] : kNames)
    if (d == dtype) return n;
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const auto& [d, n] : kNames)
    if (n == name) return d;
  return std::nullopt;
}

}  // namespace megartp
