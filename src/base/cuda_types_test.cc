// Our BF16 and FP8 against the vendor's host code, where the toolkit's headers are installed.
#include <gtest/gtest.h>

#ifdef MEGARTP_HAVE_CUDA_HEADERS

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/bfloat16.h"
#include "base/float8.h"

namespace megartp {
namespace {

uint8_t cuda_e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
uint16_t cuda_bf16(float x) { return __nv_bfloat16_raw(__float2bfloat16_rn(x)).x; }
float cuda_float_of_e4m3(uint8_t code) {
  __nv_fp8_e4m3 x;
  x.__x = code;
  return static_cast<float>(x);
}
float cuda_float_of_bf16(uint16_t code) {
  __nv_bfloat16_raw raw;
  raw.x = code;
  return __bfloat162float(__nv_bfloat16(raw));
}

// The same number, or both NaN (payload bits of NaNs are nobody's concern).
bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void expect_same_codes(float x) {
  // The vendor's host code drops the sign of a NaN; any NaN code will do.
  if (std::isnan(x)) {
    ASSERT_EQ(to_e4m3(x).bits & 0x7fU, cuda_e4m3(x) & 0x7fU);
  } else {
    ASSERT_EQ(to_e4m3(x).bits, cuda_e4m3(x)) << x;
  }
  ASSERT_EQ(to_bf16(x).bits, cuda_bf16(x)) << x;
}

TEST(CudaTypes, DecodeEveryCode) {
  for (uint32_t code = 0; code < 256; ++code)
    EXPECT_TRUE(same(to_float(e4m3{static_cast<uint8_t>(code)}), cuda_float_of_e4m3(static_cast<uint8_t>(code))))
        << code;
  for (uint32_t code = 0; code < 0x10000U; ++code)
    EXPECT_TRUE(same(to_float(bf16{static_cast<uint16_t>(code)}), cuda_float_of_bf16(static_cast<uint16_t>(code))))
        << code;
}

TEST(CudaTypes, EncodeAllBf16ValuesAndTheirNeighbours) {
  for (uint32_t code = 0; code < 0x10000U; ++code) {
    const float x = to_float(bf16{static_cast<uint16_t>(code)});
    expect_same_codes(x);
    expect_same_codes(std::nextafterf(x, std::numeric_limits<float>::infinity()));
    expect_same_codes(std::nextafterf(x, 0.0F));
    expect_same_codes(std::bit_cast<float>((code << 16) | 0x8000U));  // the middle to the next
  }
}

// 4.2 million floats, evenly over all bit patterns.
TEST(CudaTypes, EncodeADenseSample) {
  for (uint64_t bits = 0; bits <= 0xffffffffU; bits += 1021)
    expect_same_codes(std::bit_cast<float>(static_cast<uint32_t>(bits)));
}

TEST(CudaTypes, DoublesRoundOnce) {
  for (uint32_t code = 1; code < 0x7f7fU; ++code) {
    const auto low = static_cast<double>(to_float(bf16{static_cast<uint16_t>(code)}));
    const auto high = static_cast<double>(to_float(bf16{static_cast<uint16_t>(code + 1)}));
    const double middle = (low + high) / 2;
    for (const double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, high)})
      ASSERT_EQ(to_bf16(x).bits, __nv_bfloat16_raw(__double2bfloat16(x)).x) << x;
  }
}

}  // namespace
}  // namespace megartp

#else

TEST(CudaTypes, NeedTheToolkitsHeaders) { GTEST_SKIP() << "cuda_fp8.h was not found when the build was configured"; }

#endif
