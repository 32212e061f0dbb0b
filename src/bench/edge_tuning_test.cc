#include "bench/edge_tuning.h"

#include <gtest/gtest.h>

#include "launch/fake_families.h"
#include "models/glm52/glm52.h"

namespace megartp::bench {
namespace {

LaunchPlan layer_plan() {
  static const test::FakeFamilies families;
  LaunchOptions options;
  options.find_family = families.finder();
  const OpGraph graph = glm52::attention_pre_graph(glm52::glm_5_2_config(), {}, 6);
  return *build_launch_plan(graph, *glm52::decode_shapes(16, 8192, 2), options);
}

TEST(TuneEdges, FindsTheBestLevelOfEachEdge) {
  const LaunchPlan plan = layer_plan();
  // Two edges would be faster otherwise; all else costs something.
  const auto measure = [](const EdgeLevels& levels) -> Result<double> {
    double us = 20;
    for (const auto& [edge, level] : levels) {
      const EdgeLevel best = edge == "A0->C0"   ? EdgeLevel::kFull
                             : edge == "D0->D2" ? EdgeLevel::kEnterOnly
                                                : EdgeLevel::kPrefetch;
      us += std::abs(static_cast<int>(level) - static_cast<int>(best));
    }
    return us;
  };
  const auto result = tune_edges(plan, measure);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->start_us, 25);
  EXPECT_EQ(result->us, 20);
  EXPECT_EQ(result->levels.size(), plan.edges.size());
  for (const auto& [edge, level] : result->levels)
    EXPECT_EQ(level, edge == "A0->C0"   ? EdgeLevel::kFull
                     : edge == "D0->D2" ? EdgeLevel::kEnterOnly
                                        : EdgeLevel::kPrefetch)
        << edge;
  size_t kept = 0;
  for (const TuningTrial& t : result->trials) kept += static_cast<size_t>(t.is_kept);
  EXPECT_EQ(kept, 2U);
}

TEST(TuneEdges, NoiseAndRefusalsChangeNothing) {
  const LaunchPlan plan = layer_plan();
  int calls = 0;
  const auto noisy = [&calls](const EdgeLevels& levels) -> Result<double> {
    if (levels.at("B1->E1") == EdgeLevel::kFull) return make_error(ErrorCode::kInvalidArgument, "does not prove");
    return 20 - 0.001 * (++calls % 7);
  };
  const auto result = tune_edges(plan, noisy);
  ASSERT_TRUE(result);
  for (const auto& [edge, level] : result->levels) EXPECT_EQ(level, EdgeLevel::kPrefetch) << edge;
  size_t refused = 0;
  for (const TuningTrial& t : result->trials) refused += static_cast<size_t>(t.is_refused);
  EXPECT_EQ(refused, 1U);
}

TEST(TuneEdges, ADeviceErrorEndsIt) {
  int calls = 0;
  const auto failing = [&calls](const EdgeLevels&) -> Result<double> {
    if (++calls == 5) return make_error(ErrorCode::kDeviceError, "the device is gone");
    return 20.0;
  };
  const auto result = tune_edges(layer_plan(), failing);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeviceError);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace megartp::bench
