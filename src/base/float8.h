// E4M3 "fn": 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is 0x7f and 0xff, largest value 448.
// Encoding rounds to nearest even and saturates, as cuda_fp8.h does (tests compare all inputs).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace megartp {

struct e4m3 {
  uint8_t bits = 0;
  friend bool operator==(e4m3, e4m3) = default;
};

inline constexpr float kE4m3Max = 448.0F;
constexpr bool is_nan(e4m3 x) { return (x.bits & 0x7fU) == 0x7fU; }

constexpr float decode_e4m3_bits(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80U} << 24;
  const uint32_t exponent = (bits >> 3) & 0xfU;
  const uint32_t mantissa = bits & 7U;
  if ((bits & 0x7fU) == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (exponent == 0) {
    const float v = static_cast<float>(mantissa) * 0x1p-9F;
    return sign != 0 ? -v : v;
  }
  return std::bit_cast<float>(sign | (exponent + 120U) << 23 | mantissa << 20);
}

inline constexpr std::array<float, 256> kE4m3Table = [] {
  std::array<float, 256> t{};
  for (uint32_t i = 0; i < 256; ++i) t[i] = decode_e4m3_bits(static_cast<uint8_t>(i));
  return t;
}();

constexpr float to_float(e4m3 x) { return kE4m3Table[x.bits]; }

constexpr e4m3 to_e4m3(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80U);
  const uint32_t a = u & 0x7fffffffU;
  if (a > 0x7f800000U) return e4m3{static_cast<uint8_t>(sign | 0x7fU)};
  if (a >= 0x43e00000U) return e4m3{static_cast<uint8_t>(sign | 0x7eU)};  // >= 448 saturates
  if (a < 0x3c800000U) {                                                  // below 2^-6: subnormal, units of 2^-9
    const float units = std::bit_cast<float>(a) * 512.0F;                 // exact, < 8
    auto n = static_cast<uint32_t>(units);
    const float rest = units - static_cast<float>(n);
    if (rest > 0.5F || (rest == 0.5F && (n & 1U) != 0U)) ++n;
    return e4m3{static_cast<uint8_t>(sign | n)};  // n == 8 is the smallest normal
  }
  uint32_t r = a + 0x7ffffU + ((a >> 20) & 1U);  // round to 3 mantissa bits
  r = (r >> 20) - (120U << 3);
  if (r > 0x7eU) r = 0x7eU;
  return e4m3{static_cast<uint8_t>(sign | r)};
}

}  // namespace megartp
