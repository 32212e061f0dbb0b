// FP8 quantisation shared by op families: one scale per group of up to 128 values.
//
// scale = max(amax, 1e-4) / 448 in fp32; q = e4m3(v / scale). With pow2, the scale is rounded up to a power of two by
// integer arithmetic on its bits (UE8M0 rule: a non-zero mantissa bumps the exponent).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/float8.h"

namespace megartp::ops {

inline constexpr int64_t kQuantGroup = 128;
inline constexpr float kAmaxFloor = 1e-4F;

constexpr float pow2_ceil(float s) {
  auto u = std::bit_cast<uint32_t>(s);
  if ((u & 0x7fffffU) != 0U) u = (u & 0x7f800000U) + 0x800000U;
  return std::bit_cast<float>(u);
}

constexpr float group_scale(float amax, bool pow2) {
  const float s = (amax > kAmaxFloor ? amax : kAmaxFloor) / kE4m3Max;
  return pow2 ? pow2_ceil(s) : s;
}

// Quantises `count` values as one group; returns the scale. amax of NaN input is NaN-safe only in that NaN encodes as
// NaN.
inline float quantize_group(const float* v, int64_t count, bool pow2, e4m3* q) {
  float amax = 0.0F;
  for (int64_t i = 0; i < count; ++i) amax = std::fmax(amax, std::fabs(v[i]));
  const float s = group_scale(amax, pow2);
  for (int64_t i = 0; i < count; ++i) q[i] = to_e4m3(v[i] / s);
  return s;
}

}  // namespace megartp::ops
