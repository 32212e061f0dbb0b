#include "ops/common/norm.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace megartp::ops {
namespace {

// The order as the header words it, one value at a time.
float sum_in_documented_order(const std::vector<float>& v) {
  float total = 0;
  for (size_t block = 0; block * 128 < v.size(); ++block) {
    std::vector<float> lane(8, 0.0F);
    for (size_t k = 0; k < 128 && block * 128 + k < v.size(); ++k) lane[k % 8] = lane[k % 8] + v[block * 128 + k];
    const float even = (lane[0] + lane[4]) + (lane[2] + lane[6]);
    const float odd = (lane[1] + lane[5]) + (lane[3] + lane[7]);
    total = total + (even + odd);
  }
  return total;
}

std::vector<float> values(size_t n) {
  const Rng rng(11, n);
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(rng.normal(i) * std::exp2(static_cast<double>(i % 13)));
  return v;
}

TEST(Norm, SumHasTheDocumentedOrder) {
  bool order_matters = false;
  for (const size_t n : {0U, 1U, 7U, 8U, 9U, 127U, 128U, 129U, 255U, 1000U, 6144U}) {
    const std::vector<float> v = values(n);
    EXPECT_EQ(row_sum(v.data(), static_cast<int64_t>(n)), sum_in_documented_order(v)) << n;
    float plain = 0;
    for (const float x : v) plain += x;
    order_matters = order_matters || plain != row_sum(v.data(), static_cast<int64_t>(n));
  }
  EXPECT_TRUE(order_matters) << "the data do not tell orders apart";
}

TEST(Norm, SquaresAndDeviationsUseTheSameOrder) {
  for (const size_t n : {1U, 12U, 128U, 333U}) {
    std::vector<float> v = values(n);
    const auto count = static_cast<int64_t>(n);
    std::vector<float> squares;
    std::vector<float> deviations;
    for (const float x : v) {
      squares.push_back(x * x);
      deviations.push_back((x - 0.25F) * (x - 0.25F));
    }
    EXPECT_EQ(sum_of_squares(v.data(), count), sum_in_documented_order(squares));
    EXPECT_EQ(sum_of_squared_deviations(v.data(), count, 0.25F), sum_in_documented_order(deviations));
  }
}

TEST(Norm, Bf16AndFp32RowsGiveTheSameBits) {
  for (const size_t n : {5U, 128U, 300U}) {
    const std::vector<float> wide = values(n);
    std::vector<bf16> x;
    std::vector<float> x_float;
    std::vector<bf16> w;
    for (size_t i = 0; i < n; ++i) {
      x.push_back(to_bf16(wide[i]));
      x_float.push_back(to_float(x.back()));
      w.push_back(to_bf16(1.0F + static_cast<float>(i % 7) * 0.125F));
    }
    std::vector<bf16> a(n);
    std::vector<bf16> b(n);
    rmsnorm_row(x.data(), w.data(), static_cast<int64_t>(n), 1e-5F, a.data());
    rmsnorm_row(x_float.data(), w.data(), static_cast<int64_t>(n), 1e-5F, b.data());
    EXPECT_EQ(a, b);
  }
}

TEST(Norm, ScaleIsOneOverTheRoot) {
  EXPECT_EQ(rms_scale(64.0F, 4, 0.0F), 0.25F);
  EXPECT_EQ(rms_scale(0.0F, 4, 0.0625F), 4.0F);
}

}  // namespace
}  // namespace megartp::ops
