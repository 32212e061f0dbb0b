#include "launch/launch_plan.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/fake_families.h"
#include "launch/launch_text.h"
#include "models/glm52/glm52.h"
#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"

namespace megartp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr LaunchMode kAllModes[] = {LaunchMode::kSerial, LaunchMode::kPdl, LaunchMode::kDag, LaunchMode::kCmp};

struct Layer {
  OpGraph graph = glm52::attention_pre_graph(glm52::glm_5_2_config(), {}, 6);
  ShapeEnv shapes = *glm52::decode_shapes(16, 8192, 2);
  test::FakeFamilies families;

  Result<LaunchPlan> build(LaunchMode mode, LaunchOptions options = {}) const {
    options.mode = mode;
    options.find_family = families.finder();
    return build_launch_plan(graph, shapes, options);
  }
};

std::set<std::string> edge_names(const LaunchPlan& plan) {
  std::set<std::string> names;
  for (const LaunchEdge& e : plan.edges) names.insert(edge_name(plan, e));
  return names;
}

const LaunchEdge& edge(const LaunchPlan& plan, std::string_view name) {
  for (const LaunchEdge& e : plan.edges)
    if (edge_name(plan, e) == name) return e;
  ADD_FAILURE() << "no edge " << name;
  return plan.edges.front();
}

const LaunchKernel& kernel(const LaunchPlan& plan, std::string_view name) {
  return plan.kernels[*find_kernel(plan, name)];
}

std::string error_of(const Result<LaunchPlan>& plan) {
  return plan ? std::string("no error") : plan.error().to_string() + plan.error().details;
}

TEST(LaunchPlan, DagHasTheTrueEdgesOfAttentionPre) {
  const Layer layer;
  for (const LaunchMode mode : {LaunchMode::kDag, LaunchMode::kCmp}) {
    const auto plan = layer.build(mode);
    ASSERT_TRUE(plan) << error_of(plan);
    // In cmp the join of D1 is straightened: the kernel before it waits for C0.
    EXPECT_THAT(edge_names(*plan),
                UnorderedElementsAre("A0->B0.gemm", "A0->C0", "A0->B1", "B0.gemm->B0.finalize", "B0.finalize->D0",
                                     "B0.finalize->D1", mode == LaunchMode::kDag ? "C0->D1" : "C0->B0.finalize",
                                     "D0->D2", "D1->E1", "B1->E1"));
    for (const LaunchEdge& e : plan->edges)
      EXPECT_EQ(e.kind, mode == LaunchMode::kDag ? launch::EdgeKind::kFull : launch::EdgeKind::kProgrammatic)
          << edge_name(*plan, e);
  }
}

TEST(LaunchPlan, ShortKernelsComeFirstAndAreMoreUrgent) {
  const Layer layer;
  const auto plan = layer.build(LaunchMode::kCmp);
  ASSERT_TRUE(plan) << error_of(plan);
  const auto at = [&](std::string_view name) { return *find_kernel(*plan, name); };
  const auto urgency = [&](std::string_view name) { return -plan->kernels[at(name)].priority; };
  EXPECT_LT(at("C0"), at("B0.gemm"));
  EXPECT_LT(at("D1"), at("D0"));
  for (const char* name : {"A0", "B0.gemm", "B0.finalize", "D1", "E1"}) EXPECT_GT(urgency(name), urgency("D0")) << name;
  EXPECT_GT(urgency("B1"), urgency("B0.gemm"));
  EXPECT_EQ(urgency("D1"), urgency("E1"));
  EXPECT_EQ(urgency("D2"), 0);
  for (const LaunchEdge& e : plan->edges) EXPECT_LT(e.from, e.to);
}

TEST(LaunchPlan, AForcedEdgeIsNotMoved) {
  const Layer layer;
  LaunchOptions options;
  options.levels = {{"C0->D1", EdgeLevel::kPrologue}};
  const auto plan = layer.build(LaunchMode::kCmp, options);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_EQ(edge(*plan, "C0->D1").level, EdgeLevel::kPrologue);
}

TEST(LaunchPlan, AMovedEdgeCanBeForced) {
  const Layer layer;
  LaunchOptions options;
  options.levels = {{"C0->B0.finalize", EdgeLevel::kFull}};
  const auto plan = layer.build(LaunchMode::kCmp, options);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_EQ(edge(*plan, "C0->B0.finalize").level, EdgeLevel::kFull);
  EXPECT_TRUE(edge(*plan, "C0->B0.finalize").is_forced);
}

TEST(LaunchPlan, ChainsFollowTheProgram) {
  const Layer layer;
  for (const LaunchMode mode : {LaunchMode::kSerial, LaunchMode::kPdl}) {
    const auto plan = layer.build(mode);
    ASSERT_TRUE(plan) << error_of(plan);
    ASSERT_EQ(plan->edges.size(), plan->kernels.size() - 1);
    for (uint32_t i = 0; i < plan->edges.size(); ++i) {
      EXPECT_EQ(plan->edges[i].from, i);
      EXPECT_EQ(plan->edges[i].to, i + 1);
      EXPECT_EQ(plan->edges[i].level, mode == LaunchMode::kPdl ? EdgeLevel::kPrefetch : EdgeLevel::kFull);
    }
    for (const LaunchKernel& k : plan->kernels) EXPECT_EQ(k.priority, 0);
  }
}

TEST(LaunchPlan, EveryModeProvesAndItsFileReadsBack) {
  const Layer layer;
  for (const LaunchMode mode : kAllModes) {
    const auto plan = layer.build(mode);
    ASSERT_TRUE(plan) << error_of(plan);
    EXPECT_TRUE(launch::prove(plan->graph).is_ok());
    for (const LaunchEdge& e : plan->edges) EXPECT_FALSE(e.proof.empty());
    const auto read = launch::launch_from_json(to_json(*plan));
    ASSERT_TRUE(read) << read.error().to_string();
    const auto& graph = std::get<launch::Graph>(*read);
    EXPECT_EQ(graph.nodes.size(), plan->kernels.size());
    EXPECT_EQ(graph.edges.size(), plan->edges.size());
    EXPECT_TRUE(launch::prove(graph).is_ok());
  }
}

TEST(LaunchPlan, WithoutAnyOneEdgeNothingProves) {
  const Layer layer;
  for (const LaunchMode mode : {LaunchMode::kDag, LaunchMode::kCmp}) {
    const auto plan = layer.build(mode);
    ASSERT_TRUE(plan) << error_of(plan);
    for (size_t i = 0; i < plan->edges.size(); ++i) {
      launch::Graph graph = plan->graph;
      graph.edges.erase(graph.edges.begin() + static_cast<ptrdiff_t>(i));
      EXPECT_FALSE(launch::prove(graph).is_ok()) << edge_name(*plan, plan->edges[i]);
    }
  }
}

TEST(LaunchPlan, SeveralLayersProveAndKeepNoImpliedEdge) {
  Layer layer;
  layer.graph = glm52::attention_pre_graph(glm52::glm_5_2_config(), {}, 0, 3);
  for (const LaunchMode mode : kAllModes) {
    const auto plan = layer.build(mode);
    ASSERT_TRUE(plan) << error_of(plan);
    EXPECT_EQ(plan->kernels.size(), 27U);
  }
  const auto plan = layer.build(LaunchMode::kCmp);
  EXPECT_THAT(edge(*plan, "L0.A0->L1.A0").reasons,
              ElementsAre(testing::Field(&EdgeReason::kind, EdgeReason::Kind::kReadAfterWrite)));
  EXPECT_EQ(plan->edges.size(), 3 * 10 + 2U);
}

TEST(LaunchPlan, WorkspacesFollowTheGraphsTensors) {
  const Layer layer;
  const auto plan = layer.build(LaunchMode::kCmp);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_EQ(plan->num_graph_tensors, layer.graph.tensors().size());
  ASSERT_EQ(plan->workspaces.size(), 2U);
  EXPECT_EQ(plan->tensors[plan->workspaces[0].tensor].name, "B0.partials");
  EXPECT_FALSE(plan->workspaces[0].zeroed);
  EXPECT_EQ(plan->tensors[plan->workspaces[1].tensor].name, "B0.tickets");
  EXPECT_TRUE(plan->workspaces[1].zeroed);
  EXPECT_GT(plan->num_bytes(), 60'000'000U);
}

TEST(LaunchPlan, ConstantsKeepTheirWordsAndMayNotBeWritten) {
  Layer layer;
  for (const bool writes : {false, true}) {
    layer.families.set("head_gate", std::make_shared<test::LambdaFamily>("head_gate", [writes](DeviceContext& c) {
                         auto list = *test::FakeFamily("head_gate", false).kernels(c);
                         test::touch(list[0], c.add_constant("rows", {3, 1, 4}), writes, true);
                         return Result<std::vector<DeviceKernel>>(std::move(list));
                       }));
    const auto plan = layer.build(LaunchMode::kCmp);
    if (writes) {
      EXPECT_THAT(error_of(plan), HasSubstr("kernel 'C0' writes the constant 'C0.rows'"));
      continue;
    }
    ASSERT_TRUE(plan) << error_of(plan);
    EXPECT_THAT(plan->workspaces.back().words, ElementsAre(3U, 1U, 4U));
    EXPECT_THAT(plan->tensors[plan->workspaces.back().tensor].dims, ElementsAre(3));
    EXPECT_EQ(edge(*plan, "A0->C0").level, EdgeLevel::kPrefetch);
  }
}

TEST(LaunchPlan, LevelsOfEdgesAreForced) {
  const Layer layer;
  LaunchOptions options;
  options.levels = {{"A0->B0.gemm", EdgeLevel::kFull},
                    {"A0->C0", EdgeLevel::kEnterOnly},
                    {"D1->E1", EdgeLevel::kEnterOnly},
                    {"B1->E1", EdgeLevel::kPrologue}};
  const auto plan = layer.build(LaunchMode::kCmp, options);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_EQ(edge(*plan, "A0->B0.gemm").kind, launch::EdgeKind::kFull);
  EXPECT_TRUE(edge(*plan, "A0->B0.gemm").is_forced);
  EXPECT_FALSE(kernel(*plan, "B0.gemm").has_programmatic_in);
  EXPECT_EQ(kernel(*plan, "B0.gemm").wait, DeviceWait::kPrefetch);
  EXPECT_EQ(kernel(*plan, "C0").wait, DeviceWait::kEntry);
  // One wait serves both edges: the higher level counts.
  EXPECT_EQ(kernel(*plan, "E1").wait, DeviceWait::kPrologue);
  EXPECT_THAT(explain(*plan), HasSubstr("A0 -> B0.gemm: full, as asked (RAW hidden_q, RAW hidden_scale)"));
}

TEST(LaunchPlan, UnknownEdgesAndImpossibleLevelsAreErrors) {
  const Layer layer;
  LaunchOptions options;
  options.levels = {{"A0->E1", EdgeLevel::kFull}};
  EXPECT_THAT(error_of(layer.build(LaunchMode::kCmp, options)), HasSubstr("mode cmp has no edge 'A0->E1'"));
  options.levels = {{"A0->C0", EdgeLevel::kPrefetch}};
  EXPECT_THAT(error_of(layer.build(LaunchMode::kDag, options)), HasSubstr("mode dag has full edges only"));
  options = {};
  options.only_ops = {"A0", "Z9"};
  EXPECT_THAT(error_of(layer.build(LaunchMode::kCmp, options)), HasSubstr("no op 'Z9'"));
  options = {};
  options.replay_streams = 2;
  EXPECT_THAT(error_of(layer.build(LaunchMode::kCmp, options)), HasSubstr("R9 error"));
}

TEST(LaunchPlan, AMissingFamilyIsNamedWithItsOp) {
  Layer layer;
  layer.families.remove("q_absorb");
  const auto plan = layer.build(LaunchMode::kSerial);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(plan.error().message, "op 'D2': family 'q_absorb' has no device code");
}

TEST(LaunchPlan, PartsOfAGraph) {
  const Layer layer;
  LaunchOptions options;
  options.only_ops = {"A0", "B0", "B1", "E1"};
  const auto plan = layer.build(LaunchMode::kCmp, options);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_THAT(edge_names(*plan), UnorderedElementsAre("A0->B0.gemm", "A0->B1", "B0.gemm->B0.finalize", "B1->E1"));
}

TEST(LaunchPlan, AnOutputThatNoKernelWritesIsAnError) {
  Layer layer;
  layer.families.set("head_gate", std::make_shared<test::LambdaFamily>("head_gate", [](DeviceContext& c) {
                       DeviceKernel k;
                       k.name = c.op().name;
                       k.block = 32;
                       return Result<std::vector<DeviceKernel>>(std::vector<DeviceKernel>{k});
                     }));
  EXPECT_THAT(error_of(layer.build(LaunchMode::kDag)), HasSubstr("no kernel writes tensor 'gate_partials'"));
}

// --- small graphs of adds, whose kernels the test describes

struct Adds {
  OpGraph graph{"adds"};
  ShapeEnv shapes;
  test::FakeFamilies families;
  Adds() { shapes.set("M", 4); }
  Tensor arg(const char* name) { return graph.runtime_arg(name, DType::kBF16, {"M", 64}); }
  // Calls `change` on every kernel of the op of that name.
  void change(const std::string& op, std::function<void(DeviceKernel&)> change) {
    changes_[op] = std::move(change);
    families.set("add", std::make_shared<test::LambdaFamily>("add", [changes = changes_](DeviceContext& c) {
                   auto list = *test::FakeFamily("add", false).kernels(c);
                   if (const auto it = changes.find(c.op().name); it != changes.end()) it->second(list[0]);
                   return Result<std::vector<DeviceKernel>>(std::move(list));
                 }));
  }
  Result<LaunchPlan> build(LaunchMode mode, LaunchOptions options = {}) {
    options.mode = mode;
    options.find_family = families.finder();
    return build_launch_plan(graph, shapes, options);
  }

 private:
  std::map<std::string, std::function<void(DeviceKernel&)>> changes_;
};

TEST(LaunchPlan, AChainStaysFullWhereAKernelThatNeverWaitsStandsBetween) {
  Adds g;
  const Tensor x = g.arg("x"), y = g.arg("y");
  const Tensor a = g.graph.add(x, y, "A");
  g.graph.add(x, y, "B");
  g.graph.add(a, y, "C");
  // B reads arguments only and has no wait, so C's wait for B would say nothing about A.
  g.change("B", [](DeviceKernel& k) { k.waits = false; });
  const auto plan = g.build(LaunchMode::kPdl);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_EQ(edge(*plan, "A->B").level, EdgeLevel::kFull);
  EXPECT_EQ(edge(*plan, "B->C").level, EdgeLevel::kPrefetch);
  LaunchOptions options;
  options.levels = {{"A->B", EdgeLevel::kPrefetch}};
  EXPECT_THAT(error_of(g.build(LaunchMode::kPdl, options)), HasSubstr("kernel 'B' never waits"));
  // In the DAG B stands alone.
  EXPECT_THAT(edge_names(*g.build(LaunchMode::kCmp)), UnorderedElementsAre("A->C"));
}

TEST(LaunchPlan, AnEarlyReadOfProducedDataLowersTheLevel) {
  Adds g;
  const Tensor x = g.arg("x"), y = g.arg("y");
  const Tensor a = g.graph.add(x, y, "A");
  g.graph.add(a, y, "B");
  g.change("B", [](DeviceKernel& k) { k.accesses[0].before_wait = true; });
  const auto plan = g.build(LaunchMode::kCmp);
  ASSERT_TRUE(plan) << error_of(plan);
  // As a prologue nothing is read before the wait.
  EXPECT_EQ(edge(*plan, "A->B").level, EdgeLevel::kPrologue);
  EXPECT_EQ(kernel(*plan, "B").wait, DeviceWait::kPrologue);
  LaunchOptions options;
  options.levels = {{"A->B", EdgeLevel::kPrefetch}};
  const auto forced = g.build(LaunchMode::kCmp, options);
  ASSERT_FALSE(forced);
  EXPECT_EQ(forced.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_of(forced), HasSubstr("does not prove with A->B=prefetch"));
  EXPECT_THAT(error_of(forced), HasSubstr("B reads A.out[0,512) before its wait"));
}

TEST(LaunchPlan, AnImpliedEdgeGoesUnlessTheProofNeedsIt) {
  Adds g;
  const Tensor x = g.arg("x"), y = g.arg("y");
  const Tensor a = g.graph.add(x, y, "A");
  const Tensor b = g.graph.add(a, y, "B");
  g.graph.add(a, b, "C");
  EXPECT_THAT(edge_names(*g.build(LaunchMode::kDag)), UnorderedElementsAre("A->B", "B->C"));
  EXPECT_THAT(edge_names(*g.build(LaunchMode::kCmp)), UnorderedElementsAre("A->B", "B->C"));
  // C reads A's result at once, while B may still wait for A: only an edge of C's own, a full one, makes that right.
  g.change("C", [](DeviceKernel& k) { k.accesses[0].before_wait = true; });
  LaunchOptions options;
  options.levels = {{"B->C", EdgeLevel::kPrefetch}};
  const auto plan = g.build(LaunchMode::kCmp, options);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_THAT(edge_names(*plan), UnorderedElementsAre("A->B", "B->C", "A->C"));
  EXPECT_EQ(edge(*plan, "A->C").level, EdgeLevel::kFull);
}

TEST(LaunchPlan, WritesInPlaceOrderReadersAndWriters) {
  Layer layer;
  const auto plan = layer.build(LaunchMode::kDag);
  ASSERT_TRUE(plan) << error_of(plan);
  std::set<std::string> reasons;
  for (const EdgeReason& r : edge(*plan, "D0->D2").reasons)
    reasons.insert(fmt::format("{} {}", to_string(r.kind), plan->tensors[r.tensor].name));
  EXPECT_THAT(reasons, UnorderedElementsAre("RAW q_nope", "WAW q_out"));
  reasons.clear();
  for (const EdgeReason& r : edge(*plan, "B1->E1").reasons)
    reasons.insert(fmt::format("{} {}", to_string(r.kind), plan->tensors[r.tensor].name));
  EXPECT_THAT(reasons, UnorderedElementsAre("RAW index_k_cache"));
}

TEST(LaunchPlan, PicturesShowEveryKernelAndEdge) {
  const Layer layer;
  const auto plan = layer.build(LaunchMode::kCmp);
  ASSERT_TRUE(plan) << error_of(plan);
  EXPECT_THAT(to_dot(*plan), HasSubstr("k0 -> k1 [style=dashed, label=\"prefetch\"]"));
  EXPECT_THAT(to_mermaid(*plan), HasSubstr("k0[\"A0\"]"));
  EXPECT_THAT(to_mermaid(*plan), HasSubstr("k0 -. prefetch .-> k1"));
}

TEST(LaunchPlan, NamesOfModesAndLevelsReadBack) {
  for (const LaunchMode m : kAllModes) EXPECT_EQ(*parse_launch_mode(to_string(m)), m);
  for (const EdgeLevel l : {EdgeLevel::kFull, EdgeLevel::kEnterOnly, EdgeLevel::kPrologue, EdgeLevel::kPrefetch})
    EXPECT_EQ(*parse_edge_level(to_string(l)), l);
  EXPECT_THAT(parse_edge_level("early").error().message,
              HasSubstr("'early' is no edge level; known are full, enter-only"));
  EXPECT_EQ(*parse_edge_setting("A0->B0.gemm=prologue"), std::pair(std::string("A0->B0.gemm"), EdgeLevel::kPrologue));
  EXPECT_FALSE(parse_edge_setting("A0->B0.gemm"));
  EXPECT_FALSE(parse_edge_setting("A0=full"));
}

}  // namespace
}  // namespace megartp
