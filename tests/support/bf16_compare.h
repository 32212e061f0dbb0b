// Distance of BF16 tensors in units in the last place, for tests of ops whose fp32 result may round to the neighbour of
// the reference's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/bfloat16.h"
#include "support/op_harness.h"

namespace megartp::test {

// Position of a finite value on the line of all BF16 numbers (both zeros at 0).
inline int32_t bf16_position(bf16 x) {
  const int32_t magnitude = x.bits & 0x7fff;
  return (x.bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

// Largest distance of two elements; a huge number when a NaN stands against a number or the sizes differ.
inline int32_t max_bf16_ulps(const HostBuffer& a, const HostBuffer& b) {
  constexpr int32_t kApart = 1 << 20;
  if (a.dtype != DType::kBF16 || b.dtype != DType::kBF16 || a.dims != b.dims) return kApart;
  int32_t worst = 0;
  for (size_t i = 0; i < a.count(); ++i) {
    const bf16 x = a.as<bf16>()[i];
    const bf16 y = b.as<bf16>()[i];
    const bool x_nan = (x.bits & 0x7fff) > 0x7f80;
    const bool y_nan = (y.bits & 0x7fff) > 0x7f80;
    if (x_nan || y_nan) {
      if (x_nan != y_nan) return kApart;
      continue;
    }
    worst = std::max(worst, std::abs(bf16_position(x) - bf16_position(y)));
  }
  return worst;
}

}  // namespace megartp::test
