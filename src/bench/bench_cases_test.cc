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
  const LaunchPlan full = *plan_of({}, graph);
  std::vector<BenchCase> all = backend_cases(kModes, batches, {});
  EXPECT_EQ(all.size(), 12U);
  for (auto& list : {ablation_cases({}, {}), growing_cases(graph, LaunchMode::kCmp, {}, {}),
                     pdl_cases(1, *find_pdl_edge(graph, full, 1), kRows, {}),
                     pdl_cases(2, *find_pdl_edge(graph, full, 2), kRows, {})})
    all.insert(all.end(), list.begin(), list.end());
  for (const BenchCase& c : all) {
    const auto plan = plan_of(c, graph);
    EXPECT_TRUE(plan) << c.group << " / " << c.name << ": " << plan.error().to_string();
  }
}

TEST(BenchCases, MegasFrameIsTimedOnce) {
  constexpr LaunchMode kModes[] = {LaunchMode::kCmp};
  const Batch batches[] = {{1, 2048, 1}, {16, 8192, 2}};
  MegaPlanOptions mega;
  mega.num_workers = 100;
  const auto cases = backend_cases(kModes, batches, {}, mega);
  EXPECT_THAT(names(cases), ElementsAre("cmp", "mega", "cmp", "mega", "no instruction"));
  for (const BenchCase& c : cases) {
    EXPECT_EQ(c.is_empty, c.name == "no instruction");
    EXPECT_EQ(c.mega.has_value(), c.name != "cmp");
  }
  EXPECT_EQ(cases[4].group, "frame of mega");
  EXPECT_EQ(cases[4].mega->num_workers, 100U) << "as many CTAs as the others";
  const auto growing = mega_growing_cases(layer(), mega, {}, {});
  EXPECT_EQ(growing.size(), 17U);
  EXPECT_TRUE(growing[0].is_empty);
  EXPECT_FALSE(growing[1].is_empty);
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

TEST(BenchCases, PdlEdgesAreFoundByWhatKernelsDo) {
  const OpGraph graph = layer();
  const LaunchPlan plan = *plan_of({}, graph);
  const auto first = find_pdl_edge(graph, plan, 1);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->name, "A0->B0.gemm");
  EXPECT_THAT(first->ops, ElementsAre("A0", "B0"));
  const auto second = find_pdl_edge(graph, plan, 2);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->name, "B1->E1");
  EXPECT_THAT(second->ops, ElementsAre("B1", "E1"));
  BenchCase part;
  part.launch.only_ops = {"A0", "C0"};
  EXPECT_EQ(find_pdl_edge(graph, *plan_of(part, graph), 2).error().code, ErrorCode::kUnsupported);
}

TEST(BenchCases, PdlCasesSetOneEdge) {
  constexpr int64_t kRows[] = {1, 16};
  const auto cases = pdl_cases(1, {"A0->B0.gemm", {"A0", "B0"}}, kRows, {16, 8192, 2});
  EXPECT_EQ(cases[0].group, "PDL case 1: A0->B0.gemm, M=1");
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
