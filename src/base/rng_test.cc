#include "base/rng.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace megartp {
namespace {

// Published outputs of splitmix64 for the seed 1234567.
TEST(Rng, FinalizerIsThatOfSplitmix64) {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15U;
  EXPECT_EQ(detail::mix64(1234567 + kGamma), 6457827717110365317U);
  EXPECT_EQ(detail::mix64(1234567 + 2 * kGamma), 3203168211198807973U);
  EXPECT_EQ(detail::mix64(1234567 + 3 * kGamma), 9817491932198370423U);
}

// Synthetic checkpoints are named by seed: these numbers may never change.
TEST(Rng, DrawsNeverChange) {
  const Rng rng(42, Rng::stream_of("weights"));
  EXPECT_EQ(Rng::stream_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(Rng::stream_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(rng.bits(0), 0x1a407aed7e8ec26fU);
  EXPECT_EQ(rng.bits(1000000007), 0x389a332e677c6b73U);
  EXPECT_EQ(rng.uniform(3), 0x1.69955801f0848p-3);
  EXPECT_EQ(rng.normal(5), -0x1.0807398a8b7b9p+1);
  EXPECT_EQ(rng.normal(6), 0x1.366ee32931264p-1);
  EXPECT_EQ(rng.bell(7), -0x1.3b8b62b44865fp-1);
}

TEST(Rng, SeedsStreamsAndIndicesDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (uint64_t stream = 0; stream < 20; ++stream)
      for (uint64_t index = 0; index < 50; ++index) seen.insert(Rng(seed, stream).bits(index));
  EXPECT_EQ(seen.size(), 20U * 20 * 50);
}

TEST(Rng, SequenceIsTheIndexedDraws) {
  const Rng rng(7, 3);
  RngSequence sequence(7, 3);
  EXPECT_EQ(sequence(), rng.bits(0));
  EXPECT_EQ(sequence.uniform(), rng.uniform(1));
  EXPECT_EQ(sequence.normal(), rng.normal(2));
  EXPECT_EQ(sequence.below(10), rng.below(3, 10));
  EXPECT_EQ(sequence.bell(), rng.bell(4));
  static_assert(std::uniform_random_bit_generator<RngSequence>);
}

TEST(Rng, LogarithmAndCosineAreAccurate) {
  const Rng rng(1);
  for (uint64_t i = 0; i < 20000; ++i) {
    const double x = std::exp2(rng.uniform(i, -60, 3));
    ASSERT_NEAR(detail::log_of(x), std::log(x), 4e-16 * std::max(1.0, std::fabs(std::log(x)))) << x;
    const double turns = rng.uniform(i);
    ASSERT_NEAR(detail::cos_of_turns(turns), std::cos(turns * 2 * M_PI), 1e-15) << turns;
  }
  EXPECT_EQ(detail::log_of(1.0), 0.0);
  EXPECT_EQ(detail::cos_of_turns(0.0), 1.0);
  EXPECT_EQ(detail::cos_of_turns(0.5), -1.0);
  EXPECT_EQ(std::fabs(detail::cos_of_turns(0.25)), 0.0);
}

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0, max = 0;
};
template <class Draw>
Moments moments(const Draw& draw) {
  constexpr uint64_t kCount = 200000;
  Moments m;
  for (uint64_t i = 0; i < kCount; ++i) m.mean += draw(i) / kCount;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double d = draw(i) - m.mean;
    m.variance += d * d / kCount;
    m.skewness += d * d * d / kCount;
    m.kurtosis += d * d * d * d / kCount;
    m.max = std::max(m.max, std::fabs(d));
  }
  m.skewness /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  return m;
}

TEST(Rng, DistributionsHaveTheirMoments) {
  const Rng rng(99);
  // Limits are five standard errors of 200,000 draws.
  const Moments normal = moments([&](uint64_t i) { return rng.normal(i); });
  EXPECT_NEAR(normal.mean, 0, 0.0112);
  EXPECT_NEAR(normal.variance, 1, 0.0158);
  EXPECT_NEAR(normal.skewness, 0, 0.0274);
  EXPECT_NEAR(normal.kurtosis, 3, 0.0548);
  EXPECT_GT(normal.max, 3.9);
  EXPECT_LT(normal.max, 6.7);
  const Moments bell = moments([&](uint64_t i) { return rng.bell(i); });
  EXPECT_NEAR(bell.mean, 0, 0.0112);
  EXPECT_NEAR(bell.variance, 1, 0.0158);
  EXPECT_NEAR(bell.kurtosis, 2.7, 0.0548);
  EXPECT_LT(bell.max, 3.4642);
  const Moments uniform = moments([&](uint64_t i) { return rng.uniform(i); });
  EXPECT_NEAR(uniform.mean, 0.5, 0.0033);
  EXPECT_NEAR(uniform.variance, 1.0 / 12, 0.0011);
}

TEST(Rng, BelowIsEvenAndInRange) {
  const Rng rng(5);
  std::array<int, 7> counts{};
  for (uint64_t i = 0; i < 70000; ++i) ++counts.at(rng.below(i, 7));
  for (const int c : counts) EXPECT_NEAR(c, 10000, 470);  // five standard deviations
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(rng.below(i, 1), 0U);
  for (uint64_t i = 0; i < 1000; ++i) {
    const double x = rng.uniform(i, -2, 3);
    EXPECT_TRUE(x >= -2 && x < 3);
  }
}

}  // namespace
}  // namespace megartp
