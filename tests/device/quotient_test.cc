// The division of kernels that quantise.
#include "device/quotient.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

namespace megartp::device {
namespace {

float make_float(uint32_t exponent, uint32_t mantissa) { return std::bit_cast<float>(exponent << 23 | mantissa); }

TEST(Quotient, IsTheDivision) {
  std::mt19937 rng(3);
  std::uniform_int_distribution<uint32_t> mantissas(0, 0x7fffff);
  std::uniform_int_distribution<uint32_t> exponents(105, 240);
  std::uniform_int_distribution<int> ratios(-29, 29);
  for (int i = 0; i < 2000000; ++i) {
    const uint32_t exponent = exponents(rng);
    const int of_value = static_cast<int>(exponent) + ratios(rng);
    if (of_value < 76 || of_value > 253) continue;
    // Divisors just below a power of two are those whose inverse is hardest.
    const float by = make_float(exponent, i % 4 == 0 ? 0x7fffffU - static_cast<uint32_t>(i) % 64 : mantissas(rng));
    const float v = make_float(static_cast<uint32_t>(of_value), mantissas(rng));
    const float sign = i % 2 == 0 ? 1.0F : -1.0F;
    ASSERT_EQ(quotient(sign * v, by, 1.0F / by), sign * v / by) << v << " / " << by;
  }
}

TEST(Quotient, ZerosKeepTheirSign) {
  for (const float by : {1e-6F, 1.0F, 1e36F}) {
    EXPECT_TRUE(std::signbit(quotient(-0.0F, by, 1.0F / by)));
    EXPECT_FALSE(std::signbit(quotient(0.0F, by, 1.0F / by)));
  }
}

TEST(Quotient, SmallOnesStaySmall) {
  for (const float v : {0.0F, 1e-45F, 1e-38F, 1e-30F})
    for (const float by : {1e-6F, 1.0F, 1e36F})
      EXPECT_LE(std::fabs(quotient(v, by, 1.0F / by)), 1e-20F) << v << " / " << by;
}

}  // namespace
}  // namespace megartp::device
