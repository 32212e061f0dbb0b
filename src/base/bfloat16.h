// BF16: the upper half of an IEEE float, round to nearest even. Usable with no CUDA toolkit.
#pragma once

#include <bit>
#include <cstdint>

namespace megartp {

struct bf16 {
  uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

constexpr bf16 to_bf16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffU) > 0x7f800000U) return bf16{0x7fff};  // the NaN that cuda_bf16.h gives
  return bf16{static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
}

// Rounds once, from double (a detour over float would round twice).
constexpr bf16 to_bf16(double x) {
  auto f = static_cast<float>(x);
  // Make the float step "round to odd": an inexact result keeps its last bit set, so that the second rounding is right.
  if (static_cast<double>(f) != x && x == x) {
    auto u = std::bit_cast<uint32_t>(f);
    const bool too_far = (f < 0 ? -static_cast<double>(f) : static_cast<double>(f)) > (x < 0 ? -x : x);
    if ((u & 0x7f800000U) == 0x7f800000U) return to_bf16(f);
    if ((u & 1U) == 0U) u = too_far ? u - 1U : u | 1U;
    f = std::bit_cast<float>(u);
  }
  return to_bf16(f);
}

constexpr float round_bf16(float x) { return to_float(to_bf16(x)); }

}  // namespace megartp
