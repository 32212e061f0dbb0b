#include "bench/bench_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/fake_families.h"
#include "models/glm52/glm52.h"

namespace megartp::bench {
namespace {

using ::testing::ElementsAre;

// The plan of a case, with made-up device code.
Result<LaunchPlan> plan_of(const BenchCase& c, const OpGraph& graph) {
  static const test::FakeFamilies families;
  LaunchOptions options = c.launch;
  options.find_family = families.finder();
  return build_launch_plan(graph, *glm52::decode_shapes(c.batch.m, c.batch.kv, c.batch.requests), options);
}

OpGraph layer(int64_t index = 6) { return glm52::attention_pre_graph(glm52::glm_5_2_config(), {}, index); }

std::vector<std::string> names(const std::vector<BenchCase>& cases) {
  std::vector<std::string> list;
  for (const BenchCase& c : cases) list.push_back(c.name);
  return list;
}

TEST(BenchCases, EveryListMakesPlansThatProve) {
  const OpGraph graph = layer();
  constexpr LaunchMode kModes[] = {LaunchMode::kSerial, LaunchMode::kPdl, LaunchMode::kDag, LaunchMode::kCmp};
  const Batch batches[] = {{1, 2048, 1}, {16, 8192, 2}, {256, 8192, 2}};
  constexpr int64_t kRows[] = {16, 64, 256};
  std::vector<BenchCase> all = backend_cases(kModes, batches, {});
  EXPECT_EQ(all.size(), 12U);
  for (auto& list : {ablation_cases({}, {}), growing_cases(graph, LaunchMode::kCmp, {}, {}),
                     pdl_cases("PDL case 1", "A0->B0.gemm", {"A0", "B0"}, kRows, {}),
                     pdl_cases("PDL case 2", "B0.gemm->B0.finalize", {"B0"}, kRows, {})})
    all.insert(all.end(), list.begin(), list.end());
  for (const BenchCase& c : all) {
    const auto plan = plan_of(c, graph);
    EXPECT_TRUE(plan) << c.group << " / " << c.name << ": " << plan.error().to_string();
  }
}

TEST(BenchCases, AblationIsTheFourModes) {
  const auto cases = ablation_cases({}, {});
  EXPECT_THAT(names(cases), ElementsAre("linear, full", "linear, PDL", "DAG, full", "DAG, PDL"));
  EXPECT_EQ(cases[1].launch.mode, LaunchMode::kPdl);
  EXPECT_EQ(cases[3].launch.mode, LaunchMode::kCmp);
}

TEST(BenchCases, TheSubgraphGrowsByOneOp) {
  const auto cases = growing_cases(layer(), LaunchMode::kCmp, {}, {});
  EXPECT_THAT(names(cases), ElementsAre("A0", "+C0", "+B1", "+B0", "+D0", "+D1", "+D2", "+E1", "A0", "C0", "B1", "B0",
                                        "D0", "D1", "D2", "E1"));
  EXPECT_THAT(cases[2].launch.only_ops, ElementsAre("A0", "C0", "B1"));
  EXPECT_EQ(cases[7].kind, RowKind::kCumulative);
  EXPECT_EQ(cases[8].kind, RowKind::kPlain);
  // A layer without indexer has four ops.
  EXPECT_THAT(names(growing_cases(layer(7), LaunchMode::kCmp, {}, {})),
              ElementsAre("A0", "+B0", "+D0", "+D2", "A0", "B0", "D0", "D2"));
}

TEST(BenchCases, PdlCasesSetOneEdge) {
  constexpr int64_t kRows[] = {1, 16};
  const auto cases = pdl_cases("case 1", "A0->B0.gemm", {"A0", "B0"}, kRows, {16, 8192, 2});
  EXPECT_THAT(names(cases), ElementsAre("PDL off", "enter-only", "prologue", "prefetch", "PDL off", "enter-only",
                                        "prologue", "prefetch"));
  EXPECT_EQ(cases[0].batch, (Batch{1, 8192, 1}));
  const auto plan = plan_of(cases[6], layer());
  ASSERT_TRUE(plan);
  for (const LaunchEdge& e : plan->edges)
    EXPECT_EQ(e.level, edge_name(*plan, e) == "A0->B0.gemm" ? EdgeLevel::kPrologue : EdgeLevel::kFull);
}

}  // namespace
}  // namespace megartp::bench
