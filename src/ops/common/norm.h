// Row statistics of the norms, in the one summation order of this project. Used by rmsnorm, add_rmsnorm_quant and by
// the finalizers that normalise (qkv_a, indexer_k).
//
// A sum over a row has the order of a GEMM dot product (gemm_cpu.h): in each block of 128 values, 8 lanes add the
// values k = 8i + lane in ascending i, starting from zero; lanes are added as ((0+4)+(2+6))+((1+5)+(3+7)); blocks are
// added in ascending order, starting from zero. A ragged end adds nothing to the lanes that it does not reach. The
// result depends on the row alone, not on tiles, workers or vector width (no product and sum may be contracted: the
// build says -ffp-contract=off).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/bfloat16.h"

namespace megartp::ops {

inline constexpr int64_t kSumBlock = 128;
inline constexpr int64_t kSumLanes = 8;

constexpr float add_lanes(const float (&lane)[kSumLanes]) {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// Sum of value(k) for k in [0, n), fp32, in the order above.
template <class Value>
inline float fixed_order_sum(int64_t n, const Value& value) {
  float total = 0.0F;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = std::min(n, begin + kSumBlock);
    const int64_t whole = begin + (end - begin) / kSumLanes * kSumLanes;
    float lane[kSumLanes] = {};
    for (int64_t k = begin; k < whole; k += kSumLanes)
      for (int64_t l = 0; l < kSumLanes; ++l) lane[l] += value(k + l);
    for (int64_t k = whole; k < end; ++k) lane[k - whole] += value(k);
    total += add_lanes(lane);
  }
  return total;
}

inline float sum_of_squares(const float* x, int64_t n) {
  return fixed_order_sum(n, [x](int64_t k) { return x[k] * x[k]; });
}
inline float row_sum(const float* x, int64_t n) {
  return fixed_order_sum(n, [x](int64_t k) { return x[k]; });
}
// Sum of (x - mean)^2: the LayerNorm variance before its division.
inline float sum_of_squared_deviations(const float* x, int64_t n, float mean) {
  return fixed_order_sum(n, [x, mean](int64_t k) { return (x[k] - mean) * (x[k] - mean); });
}

// 1 / sqrt(sum / n + eps): from a sum of squares to the factor of RMSNorm, from one of squared deviations to that of
// LayerNorm. Division and square root are correctly rounded, so this is the same everywhere.
inline float rms_scale(float sum, int64_t n, float eps) { return 1.0F / std::sqrt(sum / static_cast<float>(n) + eps); }

// One value of RMSNorm's output in fp32, not rounded to BF16.
inline float rmsnorm_value(float x, float scale, float w) { return x * scale * w; }

inline float sum_of_squares(const bf16* x, int64_t n) {
  return fixed_order_sum(n, [x](int64_t k) { return to_float(x[k]) * to_float(x[k]); });
}

// out[k] = bf16(x[k] * scale * w[k]) with the scale of the whole row. `X` is float or bf16; the row is read twice.
template <class X>
inline void rmsnorm_row(const X* x, const bf16* w, int64_t n, float eps, bf16* out) {
  const float scale = rms_scale(sum_of_squares(x, n), n, eps);
  for (int64_t k = 0; k < n; ++k) {
    float v = 0.0F;
    if constexpr (std::is_same_v<X, bf16>) {
      v = to_float(x[k]);
    } else {
      v = x[k];
    }
    out[k] = to_bf16(rmsnorm_value(v, scale, to_float(w[k])));
  }
}

}  // namespace megartp::ops
