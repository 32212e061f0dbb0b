// Walsh-Hadamard transform of a row, in place: x = H x / sqrt(n), n a power of two. Used by the indexer's query and
// key, which must both be rotated or both not.
//
// Fixed order: butterflies of distance 1, 2, 4, ... (a, b) -> (a + b, a - b) in fp32, then one multiplication of every
// value.
#pragma once

#include <cmath>
#include <cstdint>

namespace megartp::ops {

constexpr bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

inline void hadamard_inplace(float* x, int64_t n) {
  for (int64_t distance = 1; distance < n; distance *= 2) {
    for (int64_t block = 0; block < n; block += 2 * distance) {
      for (int64_t i = block; i < block + distance; ++i) {
        const float a = x[i];
        const float b = x[i + distance];
        x[i] = a + b;
        x[i + distance] = a - b;
      }
    }
  }
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace megartp::ops
