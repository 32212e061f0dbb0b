// The number formats and the few formulas that several ops share, rounded as on the CPU (src/ops/common).
#pragma once

#include "device/ptx.cuh"
#include "device/quotient.h"

namespace megartp::device {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr float kAmaxFloor = 1e-4F;

__device__ inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000U); }
// Two values rounded to nearest even; `low` goes to the lower address.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ inline float round_bf16(float x) { return bf16_low(pack_bf16(x, 0.0F)); }
__device__ inline uint32_t pack_e4m3(float low, float high) {  // 16 bits
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
__device__ inline uint32_t pack_e4m3(float a, float b, float c, float d) {
  return pack_e4m3(a, b) | pack_e4m3(c, d) << 16;
}
// Two e4m3 bytes (low 16 bits) as FP16, exactly.
__device__ inline uint32_t e4m3_to_f16(uint32_t pair) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
  return halves;
}
// As floats.
__device__ inline float2 unpack_e4m3(uint32_t pair) {
  const uint32_t halves = e4m3_to_f16(pair);
  float2 v;
  asm("{\n .reg .f16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h;\n}"
      : "=f"(v.x), "=f"(v.y)
      : "r"(halves));
  return v;
}

// (a, b) rotated by the angle with this cosine and sine; each step rounded, whatever stands around it.
__device__ inline float2 rotate(float a, float b, float cosine, float sine) {
  return {__fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine)), __fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, cosine))};
}
__device__ inline float group_scale(float amax, bool pow2) {
  const float s = quotient(fmaxf(amax, kAmaxFloor), kE4m3Max, 1.0F / kE4m3Max);
  if (!pow2) return s;
  uint32_t u = __float_as_uint(s);
  if ((u & 0x7fffffU) != 0) u = (u & 0x7f800000U) + 0x800000U;
  return __uint_as_float(u);
}
// The codes of a group's values; scale is group_scale() of its greatest one.
template <int kCount>
__device__ inline void quantize(const float (&v)[kCount], float scale, uint32_t (&codes)[kCount / 4]) {
  const float inverse = __fdiv_rn(1.0F, scale);
#pragma unroll
  for (int i = 0; i < kCount; i += 4)
    codes[i / 4] = pack_e4m3(quotient(v[i], scale, inverse), quotient(v[i + 1], scale, inverse),
                             quotient(v[i + 2], scale, inverse), quotient(v[i + 3], scale, inverse));
}
// 1 / sqrt(sum / n + eps), each step rounded as on the CPU.
__device__ inline float norm_factor(float sum, float n, float eps) {
  return __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, n), eps)));
}

// All lanes get the sum; the order is fixed: a butterfly.
__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffU, v, offset);
  return v;
}
// The same of each of v, a power of two of them up to 32, in v[0] of the lanes to whom it returns that one's index.
// Lanes share the sums as they go: 9 exchanges for 8, not 40.
template <int kCount>
__device__ __forceinline__ uint32_t warp_sum_of_each(float (&v)[kCount]) {
  static_assert(kCount > 0 && (kCount & (kCount - 1)) == 0 && kCount <= 32);
  uint32_t index = 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const int half = offset * kCount / 32;  // of the sums that a lane still has
    const bool is_upper = (threadIdx.x & offset) != 0;
    if (half == 0) v[0] += __shfl_xor_sync(0xffffffffU, v[0], offset);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float sent = is_upper ? v[i] : v[i + half];
      v[i] = (is_upper ? v[i + half] : v[i]) + __shfl_xor_sync(0xffffffffU, sent, offset);
    }
    if (is_upper) index += half;
  }
  return index;
}
template <int kLanes>
__device__ inline float group_max(float v) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffU, v, offset));
  return v;
}

}  // namespace megartp::device
