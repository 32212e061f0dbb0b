// Attention-pre at ten shapes, in every event mode and with both kinds of finalizers, against the oracle that looks at
// all pairs of tasks.
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "support/dependency_oracle.h"

namespace megartp::test {
namespace {

struct Batch {
  int64_t m;
  int64_t kv;
  int64_t requests;
};
constexpr std::array<Batch, 10> kBatches{{{1, 1, 1},
                                          {1, 8192, 1},
                                          {3, 100, 2},
                                          {5, 513, 5},
                                          {8, 4096, 2},
                                          {16, 8192, 2},
                                          {17, 2049, 1},
                                          {33, 64, 3},
                                          {65, 1000, 2},
                                          {128, 3000, 4}}};

class AttentionPreOracle : public testing::TestWithParam<Batch> {};

TEST_P(AttentionPreOracle, NothingIsLostInAnyMode) {
  const Batch batch = GetParam();
  const OpGraph graph = glm52::attention_pre_graph(glm52::Config{}, {}, 6, 1);
  ASSERT_TRUE(graph.status());
  const auto shapes = glm52::decode_shapes(batch.m, batch.kv, batch.requests);
  ASSERT_TRUE(shapes) << shapes.error().to_string();
  for (const FinalizerMode finalizer : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
    for (const EventMode mode : {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole}) {
      LowerOptions options;
      options.finalizer = finalizer;
      options.events.mode = mode;
      const auto tasks = lower(graph, *shapes, options);
      ASSERT_TRUE(tasks) << tasks.error().to_string();
      const auto problems = dependency_problems(*tasks, {.no_coarser = mode == EventMode::kExact});
      EXPECT_TRUE(problems.empty()) << to_string(mode) << ": " << fmt::format("{}", fmt::join(problems, "\n"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionPreOracle, testing::ValuesIn(kBatches), [](const auto& test) {
  return fmt::format("M{}KV{}R{}", test.param.m, test.param.kv, test.param.requests);
});

}  // namespace
}  // namespace megartp::test
