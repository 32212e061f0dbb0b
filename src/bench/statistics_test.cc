#include "bench/statistics.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace megartp::bench {
namespace {

TEST(Statistics, QuantilesLieBetweenNeighbours) {
  const std::vector<double> sorted{1, 2, 4, 8};
  EXPECT_EQ(quantile(sorted, 0), 1);
  EXPECT_EQ(quantile(sorted, 1), 8);
  EXPECT_EQ(quantile(sorted, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.05), 1.15);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.95), 7.4);
  EXPECT_EQ(quantile({5}, 0.7), 5);
}

TEST(Statistics, OrderDoesNotMatterAndOneOutlierMovesNoMedian) {
  std::vector<double> sample;
  for (int i = 0; i < 101; ++i) sample.push_back((i * 37) % 101);
  Summary s = summarize(sample);
  EXPECT_EQ(s, (Summary{101, 50, 5, 95, 0, 100}));
  sample[0] = 1e6;
  s = summarize(sample);
  EXPECT_EQ(s.median, 51);  // the least value became the greatest
  EXPECT_EQ(s.max, 1e6);
  EXPECT_EQ(summarize({}), Summary{});
}

TEST(Statistics, QuantilesAgreeWithTheirShareOfARandomSample) {
  RngSequence rng(3);
  std::vector<double> sample;
  for (int i = 0; i < 20000; ++i) sample.push_back(rng.uniform());
  const Summary s = summarize(sample);
  EXPECT_NEAR(s.p5, 0.05, 0.01);
  EXPECT_NEAR(s.median, 0.5, 0.015);
  EXPECT_NEAR(s.p95, 0.95, 0.01);
}

TEST(Statistics, Rates) {
  EXPECT_DOUBLE_EQ(gb_per_s(68.1e6, 20), 3405);
  EXPECT_EQ(gb_per_s(1, 0), 0);
}

}  // namespace
}  // namespace megartp::bench
