#include "bench/replay_check.h"

#include <set>

#include <gtest/gtest.h>

namespace megartp::bench {
namespace {

TEST(ReplayCheck, SignsChangeAndNothingElse) {
  std::vector<uint16_t> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(0x3f80 + i);
  std::set<std::vector<uint16_t>> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<uint16_t> changed = values;
    flip_signs(changed, seed);
    size_t flipped = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(changed[i] & 0x7fff, values[i]);
      flipped += static_cast<size_t>(changed[i] != values[i]);
    }
    EXPECT_GT(flipped, 400U);
    EXPECT_LT(flipped, 600U);
    EXPECT_TRUE(seen.insert(changed).second);
  }
}

}  // namespace
}  // namespace megartp::bench
