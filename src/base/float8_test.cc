#include "base/float8.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/rng.h"

namespace megartp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// (-1)^sign * 2^(exponent - 7) * (1 + mantissa / 8), or 2^-6 * mantissa / 8 below the normal numbers.
double e4m3_by_definition(uint32_t code) {
  const int exponent = static_cast<int>((code >> 3) & 15U);
  const double mantissa = (code & 7U) / 8.0;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1.0 + mantissa, exponent - 7);
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

// The nearest of all finite codes, found by search; a tie goes to the even code; beyond 448 to 448.
uint8_t encode_by_search(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const double target = std::fabs(static_cast<double>(x));
  uint32_t below = 0;  // largest code that is not above the target: values ascend with the code
  for (uint32_t step = 64; step > 0; step /= 2)
    if (below + step <= 0x7e && e4m3_by_definition(below + step) <= target) below += step;
  if (below == 0x7e) return sign | 0x7e;
  const double down = target - e4m3_by_definition(below);
  const double up = e4m3_by_definition(below + 1) - target;
  const bool take_upper = up < down || (up == down && below % 2 == 1);
  return static_cast<uint8_t>(sign | (take_upper ? below + 1 : below));
}

void expect_encoded(float x) {
  ASSERT_EQ(to_e4m3(x).bits, encode_by_search(x)) << x;
  ASSERT_EQ(to_e4m3(-x).bits, encode_by_search(-x)) << -x;
}

TEST(Float8, DecodesEveryCode) {
  for (uint32_t code = 0; code < 256; ++code) {
    const e4m3 x{static_cast<uint8_t>(code)};
    if ((code & 0x7fU) == 0x7fU) {
      EXPECT_TRUE(is_nan(x));
      EXPECT_TRUE(std::isnan(to_float(x)));
      continue;
    }
    EXPECT_FALSE(is_nan(x));
    EXPECT_EQ(static_cast<double>(to_float(x)), e4m3_by_definition(code)) << code;
    EXPECT_EQ(std::signbit(to_float(x)), code >= 0x80U) << code;
  }
  EXPECT_EQ(to_float(e4m3{0x7e}), kE4m3Max);
}

TEST(Float8, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 256; ++code) EXPECT_EQ(to_e4m3(to_float(e4m3{static_cast<uint8_t>(code)})).bits, code);
}

TEST(Float8, RoundsRightAroundEveryBoundary) {
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const auto low = static_cast<float>(e4m3_by_definition(code));
    const auto high = static_cast<float>(e4m3_by_definition(code + 1));
    const float middle = low + (high - low) / 2;  // exact: one more mantissa bit
    for (const float center : {low, middle, high}) {
      float up = center;
      float down = center;
      expect_encoded(center);
      for (int i = 0; i < 4; ++i) {
        up = std::nextafterf(up, kInfinity);
        down = std::nextafterf(down, -kInfinity);
        expect_encoded(up);
        expect_encoded(down);
      }
    }
    // A halfway case goes to the even code.
    EXPECT_EQ(to_e4m3(middle).bits % 2, 0) << code;
  }
}

TEST(Float8, SaturatesAndKeepsSigns) {
  for (const float x : {448.0F, 463.9F, 464.0F, 464.1F, 480.0F, 1e30F, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(to_e4m3(x).bits, 0x7e) << x;
    EXPECT_EQ(to_e4m3(-x).bits, 0xfe) << x;
  }
  EXPECT_EQ(to_e4m3(0.0F).bits, 0x00);
  EXPECT_EQ(to_e4m3(-0.0F).bits, 0x80);
  EXPECT_EQ(to_e4m3(std::numeric_limits<float>::denorm_min()).bits, 0x00);
  EXPECT_EQ(to_e4m3(-std::numeric_limits<float>::denorm_min()).bits, 0x80);
  EXPECT_EQ(to_e4m3(0x1p-10F).bits, 0x00);  // half of the smallest: to even
  EXPECT_EQ(to_e4m3(0x1.8p-9F).bits, 0x02);
  EXPECT_TRUE(is_nan(to_e4m3(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(is_nan(to_e4m3(-std::numeric_limits<float>::quiet_NaN())));
}

TEST(Float8, AgreesWithTheSearchOnAllBf16ValuesAndASample) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float x = to_float(bf16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(to_e4m3(x).bits, encode_by_search(x)) << bits;
  }
  const Rng rng(1);
  for (uint64_t i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(rng.bits(i)));
    ASSERT_EQ(to_e4m3(x).bits, encode_by_search(x)) << x;
    const auto y = static_cast<float>(rng.uniform(i, -500, 500));
    ASSERT_EQ(to_e4m3(y).bits, encode_by_search(y)) << y;
  }
}

static_assert(to_e4m3(1.0F).bits == 0x38 && to_float(e4m3{0x38}) == 1.0F, "usable at compile time");

}  // namespace
}  // namespace megartp
