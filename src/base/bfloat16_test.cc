#include "base/bfloat16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace megartp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Value of a positive code, with 2^128 in place of infinity: what rounding sees beyond the largest number.
double value_by_definition(uint32_t code) {
  const int exponent = static_cast<int>(code >> 7);
  const double mantissa = (code & 127U) / 128.0;
  return exponent == 0 ? std::ldexp(mantissa, -126) : std::ldexp(1.0 + mantissa, exponent - 127);
}

TEST(Bfloat16, DecodesEveryCode) {
  for (uint32_t code = 0; code < 0x8000U; ++code) {
    const float x = to_float(bf16{static_cast<uint16_t>(code)});
    const float negative = to_float(bf16{static_cast<uint16_t>(code | 0x8000U)});
    if (code > 0x7f80U) {
      EXPECT_TRUE(std::isnan(x) && std::isnan(negative));
    } else {
      EXPECT_EQ(static_cast<double>(x), code == 0x7f80U ? kInf : value_by_definition(code)) << code;
      EXPECT_TRUE(std::signbit(negative) && negative == -x);
    }
  }
}

TEST(Bfloat16, EveryNumberSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 0x10000U; ++code) {
    const bf16 x{static_cast<uint16_t>(code)};
    const uint32_t expected = (code & 0x7fffU) > 0x7f80U ? 0x7fffU : code;  // all NaNs become one
    EXPECT_EQ(to_bf16(to_float(x)).bits, expected);
    EXPECT_EQ(to_bf16(static_cast<double>(to_float(x))).bits, expected);
    EXPECT_EQ(std::bit_cast<uint32_t>(round_bf16(to_float(x))), expected << 16);
  }
}

// Between each number and the next: the middle goes to the even code, its neighbours to their sides. In double the
// neighbours are so close to the middle that a detour over float would lose them.
template <class Float>
void check_boundaries() {
  for (uint32_t code = 0; code < 0x7f80U; ++code) {
    const auto middle = static_cast<Float>((value_by_definition(code) + value_by_definition(code + 1)) / 2);
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    const Float up = std::nextafter(middle, std::numeric_limits<Float>::infinity());
    const Float down = std::nextafter(middle, Float{0});
    ASSERT_EQ(to_bf16(middle).bits, even) << code;
    ASSERT_EQ(to_bf16(up).bits, code + 1) << code;
    ASSERT_EQ(to_bf16(down).bits, code) << code;
    ASSERT_EQ(to_bf16(-middle).bits, even | 0x8000U) << code;
    ASSERT_EQ(to_bf16(-up).bits, (code + 1) | 0x8000U) << code;
    ASSERT_EQ(to_bf16(-down).bits, code | 0x8000U) << code;
  }
}

TEST(Bfloat16, RoundsFloatsRightAroundEveryBoundary) { check_boundaries<float>(); }
TEST(Bfloat16, RoundsDoublesOnceAroundEveryBoundary) { check_boundaries<double>(); }

TEST(Bfloat16, DoubleRoundingOverFloatWouldDiffer) {
  const double x = 1.0 + 0x1p-8 + 0x1p-40;  // just above the middle of 1 and its successor
  EXPECT_EQ(to_bf16(static_cast<float>(x)).bits, 0x3f80U);
  EXPECT_EQ(to_bf16(x).bits, 0x3f81U);
}

TEST(Bfloat16, ExtremeDoubles) {
  EXPECT_EQ(to_bf16(1e300).bits, 0x7f80U);
  EXPECT_EQ(to_bf16(-1e300).bits, 0xff80U);
  EXPECT_EQ(to_bf16(kInf).bits, 0x7f80U);
  EXPECT_EQ(to_bf16(-kInf).bits, 0xff80U);
  EXPECT_EQ(to_bf16(std::numeric_limits<double>::quiet_NaN()).bits, 0x7fffU);
  EXPECT_EQ(to_bf16(std::numeric_limits<double>::denorm_min()).bits, 0x0000U);
  EXPECT_EQ(to_bf16(-std::numeric_limits<double>::denorm_min()).bits, 0x8000U);
  EXPECT_EQ(to_bf16(-0.0).bits, 0x8000U);
  EXPECT_EQ(to_bf16(static_cast<double>(std::numeric_limits<float>::max())).bits, 0x7f80U);
}

TEST(Bfloat16, DoubleAndFloatAgreeOnFloats) {
  const Rng rng(2);
  for (uint64_t i = 0; i < 300000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(rng.bits(i)));
    ASSERT_EQ(to_bf16(x).bits, to_bf16(static_cast<double>(x)).bits) << x;
  }
}

static_assert(to_bf16(1.0F).bits == 0x3f80 && to_bf16(1.0).bits == 0x3f80, "usable at compile time");

}  // namespace
}  // namespace megartp
