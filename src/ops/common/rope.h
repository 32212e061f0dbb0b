// Rotary embedding on one row of `n` values, in place, fp32.
//
// Interleaved: pairs (x[2i], x[2i+1]); half-split: pairs (x[i], x[i + n/2]). cos_sin holds n/2 cosines, then n/2 sines.
// Results stay in place (pair order preserved).
#pragma once

#include <cstdint>

namespace megartp::ops {

template <class T>
inline void rope_inplace(T* x, int64_t n, const float* cos_sin, bool interleave) {
  const int64_t half = n / 2;
  for (int64_t i = 0; i < half; ++i) {
    T& a = interleave ? x[2 * i] : x[i];
    T& b = interleave ? x[2 * i + 1] : x[i + half];
    const T c = cos_sin[i];
    const T s = cos_sin[half + i];
    const T ra = a * c - b * s;
    const T rb = a * s + b * c;
    a = ra;
    b = rb;
  }
}

}  // namespace megartp::ops
