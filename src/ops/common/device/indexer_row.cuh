// One row of 128 values of the indexer's q or k, held by a warp, four neighbours a lane: RoPE on the first dims,
// optional Hadamard rotation, one rounding to BF16, one FP8 group.
#pragma once

#include "device/numeric.cuh"

namespace megartp::device {

struct IndexerRowOptions {
  uint32_t rope;  // a multiple of 8, at most 128
  uint32_t interleave;
  uint32_t hadamard;
  uint32_t pow2_scale;
};

// Cosines and sines of this lane's values; `cos_sin` is the row of the position, F32 [rope].
struct RopeFactors {
  float c[4];
  float s[4];
};
__device__ inline RopeFactors load_rope(const float* cos_sin, const IndexerRowOptions& o) {
  RopeFactors f = {};
  const uint32_t lane = lane_index();
  if (lane * 4 < o.rope) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t d = lane * 4 + i;
      const uint32_t pair = o.interleave != 0 ? d / 2 : d < o.rope / 2 ? d : d - o.rope / 2;
      f.c[i] = cos_sin[pair];
      f.s[i] = cos_sin[o.rope / 2 + pair];
    }
  }
  return f;
}

// v: this lane's values, fp32. Returns the four codes and the group's scale.
__device__ inline uint32_t indexer_row(float (&v)[4], const RopeFactors& f, const IndexerRowOptions& o, float* scale) {
  const uint32_t lane = lane_index();
  if (o.interleave != 0) {
    if (lane * 4 < o.rope) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float2 pair = rotate(v[i], v[i + 1], f.c[i], f.s[i]);
        v[i] = pair.x;
        v[i + 1] = pair.y;
      }
    }
  } else {
    const uint32_t half = o.rope / 8;  // lanes
    const bool is_first = lane < half;
    const uint32_t partner = is_first ? lane + half : lane - half;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_sync(0xffffffffU, v[i], partner & 31U);
      if (lane * 4 < o.rope)
        v[i] = is_first ? rotate(v[i], other, f.c[i], f.s[i]).x : rotate(other, v[i], f.c[i], f.s[i]).y;
    }
  }
  if (o.hadamard != 0) {
    const float a = v[0] + v[1];
    const float b = v[0] - v[1];
    const float c = v[2] + v[3];
    const float d = v[2] - v[3];
    v[0] = a + c, v[1] = b + d, v[2] = a - c, v[3] = b - d;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float other = __shfl_xor_sync(0xffffffffU, v[i], distance);
        v[i] = (lane & distance) != 0 ? other - v[i] : v[i] + other;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] *= 0.08838834764831845F;  // 1 / sqrt(128)
  }
  float amax = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = round_bf16(v[i]);
    amax = fmaxf(amax, fabsf(v[i]));
  }
  *scale = group_scale(group_max<32>(amax), o.pow2_scale != 0);
  uint32_t codes[1];
  quantize(v, *scale, codes);
  return codes[0];
}

}  // namespace megartp::device
