// Stands in for src/device/numeric.cuh where kernels are emulated on the host: the same functions without PTX.
#pragma once

#include "base/bfloat16.h"
#include "base/float8.h"
#include "device/emulate/cuda_words.h"

namespace megartp::device {

inline uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
inline uint32_t lane_index() { return threadIdx.x % 32; }

inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000U); }
inline uint32_t pack_bf16(float low, float high) { return to_bf16(low).bits | uint32_t{to_bf16(high).bits} << 16; }
inline float round_bf16(float x) { return bf16_low(pack_bf16(x, 0.0F)); }
inline uint32_t pack_e4m3(float low, float high) { return to_e4m3(low).bits | uint32_t{to_e4m3(high).bits} << 8; }
inline float2 unpack_e4m3(uint32_t pair) {
  e4m3 low, high;
  low.bits = static_cast<uint8_t>(pair);
  high.bits = static_cast<uint8_t>(pair >> 8);
  return {to_float(low), to_float(high)};
}
inline float group_scale(float amax, bool pow2) {
  const float s = std::max(amax, 1e-4F) / 448.0F;
  uint32_t u = __float_as_uint(s);
  if (pow2 && (u & 0x7fffffU) != 0) u = (u & 0x7f800000U) + 0x800000U;
  return __uint_as_float(u);
}
inline float norm_factor(float sum, float n, float eps) { return 1.0F / std::sqrt(sum / n + eps); }
inline float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffU, v, offset);
  return v;
}
template <int kLanes>
inline float group_max(float v) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) v = std::max(v, __shfl_xor_sync(0xffffffffU, v, offset));
  return v;
}
inline float4 load_global(const float4* p) { return *p; }

}  // namespace megartp::device
