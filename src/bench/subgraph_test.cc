#include "bench/subgraph.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_mega/mega_plan.h"
#include "models/glm52/glm52.h"
#include "support/layer_configs.h"
#include "verify/plan/plan_proof.h"

namespace megartp::bench {
namespace {

using testing::HasSubstr;

TEST(SubgraphOfOps, EveryOpAloneAndEveryPrefixHasAProvedPlan) {
  const OpGraph graph = glm52::attention_pre_graph(test::small_config(), {}, 6);
  const ShapeEnv shapes = glm52::decode_shapes(5, 300, 2).value();
  std::vector<std::vector<std::string>> choices{{}};
  std::vector<std::string> prefix;
  for (const OpInfo& op : graph.ops()) {
    choices.push_back({op.name});
    prefix.push_back(op.name);
    choices.push_back(prefix);
  }
  for (const auto& ops : choices) {
    SCOPED_TRACE(testing::PrintToString(ops));
    const auto part = subgraph(graph, ops);
    ASSERT_TRUE(part) << part.error().to_string();
    EXPECT_EQ(part->ops().size(), ops.empty() ? graph.ops().size() : ops.size());
    const auto plan = build_mega_plan(*part, shapes);
    ASSERT_TRUE(plan) << plan.error().to_string();
    const Status proved = require_proved(*plan);
    EXPECT_TRUE(proved) << proved.error().to_string();
  }
}

TEST(SubgraphOfOps, NamesOpsThatAreNotThere) {
  const OpGraph graph = glm52::attention_pre_graph(test::small_config(), {}, 6);
  const std::array<std::string, 1> ops{"Z9"};
  EXPECT_THAT(subgraph(graph, ops).error().message, HasSubstr("no op 'Z9'"));
}

}  // namespace
}  // namespace megartp::bench
