#include "launch/relax_edges.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "verify/launch/launch_prover.h"

namespace megartp {
namespace {

using launch::EdgeKind;
using launch::Trigger;
using launch::Waits;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr uint64_t kX = 0x1000, kY = 0x2000, kA = 0x3000, kB = 0x4000, kC = 0x5000;

// f(in, out), g(in, in, out): 256 bytes each; both wait in every CTA.
std::vector<KernelDeclaration> declarations() {
  KernelDeclaration f{"f", {{0, 0, 256, false}, {1, 0, 256, true}}, Waits::kAll, Trigger::kBeforeWait};
  KernelDeclaration g{
      "g", {{0, 0, 256, false}, {1, 0, 256, false}, {2, 0, 256, true}}, Waits::kAll, Trigger::kBeforeWait};
  return {f, g};
}
CapturedNode f(uint64_t in, uint64_t out) { return {launch::NodeKind::kKernel, "f", {in, out}}; }
CapturedNode g(uint64_t a, uint64_t b, uint64_t out) { return {launch::NodeKind::kKernel, "g", {a, b, out}}; }

CapturedGraph in_one_stream(std::vector<CapturedNode> nodes) {
  CapturedGraph graph;
  graph.nodes = std::move(nodes);
  for (uint32_t i = 1; i < graph.nodes.size(); ++i) graph.edges.push_back({i - 1, i});
  return graph;
}

std::string error_of(const Result<Rewrite>& r) {
  return r ? std::string("no error") : r.error().to_string() + r.error().details;
}

// x -> A, y -> B, A and B -> C.
const std::vector<KeyedEdge> kJoin{{"f(0x1000,0x3000)", "g(0x3000,0x4000,0x5000)", EdgeKind::kFull},
                                   {"f(0x2000,0x4000)", "g(0x3000,0x4000,0x5000)", EdgeKind::kFull}};

TEST(RelaxCapture, TakesFalseEdgesOut) {
  const auto r = relax_capture(in_one_stream({f(kX, kA), f(kY, kB), g(kA, kB, kC)}), declarations());
  ASSERT_TRUE(r) << error_of(r);
  EXPECT_EQ(r->keyed, kJoin);
  EXPECT_TRUE(r->undeclared.empty());
}

TEST(RelaxCapture, OrderOfIssueDoesNotMatter) {
  const auto r = relax_capture(in_one_stream({f(kY, kB), f(kX, kA), g(kA, kB, kC)}), declarations());
  ASSERT_TRUE(r) << error_of(r);
  EXPECT_EQ(r->keyed, kJoin);
  // Nor does the order in which the driver lists nodes.
  CapturedGraph shuffled;
  shuffled.nodes = {g(kA, kB, kC), f(kY, kB), f(kX, kA)};
  shuffled.edges = {{2, 1}, {1, 0}};
  const auto s = relax_capture(shuffled, declarations());
  ASSERT_TRUE(s) << error_of(s);
  EXPECT_EQ(s->keyed, kJoin);
  EXPECT_EQ(s->edges.size(), 2U);
  for (const launch::Edge& e : s->edges) EXPECT_EQ(e.to, 0U);
}

TEST(RelaxCapture, AnInsertedKernelMovesNoDeclaration) {
  constexpr uint64_t kOther = 0x9000, kElse = 0xa000;
  const auto r = relax_capture(in_one_stream({f(kX, kA), f(kOther, kElse), f(kY, kB), g(kA, kB, kC)}), declarations());
  ASSERT_TRUE(r) << error_of(r);
  EXPECT_EQ(r->keyed, kJoin);
  // One that overwrites what the join reads is ordered on both sides.
  const auto w = relax_capture(in_one_stream({f(kX, kA), f(kY, kB), g(kA, kB, kC), f(kX, kB)}), declarations());
  ASSERT_TRUE(w) << error_of(w);
  EXPECT_THAT(w->keyed, IsSupersetOf(kJoin));
  EXPECT_THAT(w->keyed, Contains(KeyedEdge{"g(0x3000,0x4000,0x5000)", "f(0x1000,0x4000)", EdgeKind::kFull}));
}

TEST(RelaxCapture, AnUndeclaredKernelKeepsItsPlace) {
  CapturedNode unknown{launch::NodeKind::kKernel, "library_kernel", {kX}};
  const auto r = relax_capture(in_one_stream({f(kX, kA), unknown, f(kY, kB), g(kA, kB, kC)}), declarations(), true);
  ASSERT_TRUE(r) << error_of(r);
  EXPECT_THAT(r->undeclared, ElementsAre("library_kernel(0x1000)"));
  EXPECT_THAT(r->keyed, Contains(KeyedEdge{"f(0x1000,0x3000)", "library_kernel(0x1000)", EdgeKind::kFull}));
  EXPECT_THAT(r->keyed, Contains(KeyedEdge{"library_kernel(0x1000)", "f(0x2000,0x4000)", EdgeKind::kFull}));
}

TEST(RelaxCapture, TheSameKernelTwiceIsToldApartByItsTurn) {
  const auto r = relax_capture(in_one_stream({f(kX, kA), f(kX, kA)}), declarations());
  ASSERT_TRUE(r) << error_of(r);
  EXPECT_THAT(r->keyed, ElementsAre(KeyedEdge{"f(0x1000,0x3000)", "f(0x1000,0x3000)#2", EdgeKind::kFull}));
}

TEST(RelaxCapture, RangesThatOverlapUnderTwoAddressesAreOneBuffer) {
  // f writes [A, A + 256); the second kernel reads from A + 128 on.
  const auto r = relax_capture(in_one_stream({f(kX, kA), f(kA + 128, kB)}), declarations());
  ASSERT_TRUE(r) << error_of(r);
  EXPECT_EQ(r->keyed.size(), 1U);
  const auto apart = relax_capture(in_one_stream({f(kX, kA), f(kA + 256, kB)}), declarations());
  ASSERT_TRUE(apart) << error_of(apart);
  EXPECT_TRUE(apart->keyed.empty());
}

TEST(RelaxCapture, ProgrammaticWhereTheProofAllows) {
  const auto r = relax_capture(in_one_stream({f(kX, kA), f(kY, kB), g(kA, kB, kC)}), declarations(), true);
  ASSERT_TRUE(r) << error_of(r);
  for (const KeyedEdge& e : r->keyed) EXPECT_EQ(e.kind, EdgeKind::kProgrammatic);
  auto early = declarations();
  early[1].accesses[1].before_wait = true;  // g reads what the second f writes before its wait
  const auto s = relax_capture(in_one_stream({f(kX, kA), f(kY, kB), g(kA, kB, kC)}), early, true);
  ASSERT_TRUE(s) << error_of(s);
  EXPECT_EQ(s->keyed[0].kind, EdgeKind::kProgrammatic);
  EXPECT_EQ(s->keyed[1].kind, EdgeKind::kFull);
}

TEST(RelaxCapture, BadCapturesAreErrors) {
  CapturedGraph cycle;
  cycle.nodes = {f(kX, kA), f(kY, kB)};
  cycle.edges = {{0, 1}, {1, 0}};
  EXPECT_THAT(error_of(relax_capture(cycle, declarations())), HasSubstr("cycle"));
  CapturedGraph race;
  race.nodes = {f(kX, kA), f(kA, kB)};
  EXPECT_THAT(error_of(relax_capture(race, declarations())), HasSubstr("race before any edge is relaxed"));
  CapturedGraph short_one;
  short_one.nodes = {{launch::NodeKind::kKernel, "f", {kX}}};
  EXPECT_THAT(error_of(relax_capture(short_one, declarations())), HasSubstr("no pointer parameter 1"));
}

// Up to seven kernels in one stream; a third of them never waits, and some touch things before their wait.
launch::Graph random_chain(RngSequence& rng) {
  launch::Graph graph;
  for (int b = 0; b < 4; ++b) graph.buffers.push_back({fmt::format("b{}", b), 256});
  const uint64_t num_nodes = 2 + rng.below(6);
  for (uint32_t n = 0; n < num_nodes; ++n) {
    launch::Node node;
    node.name = fmt::format("k{}", n);
    node.waits = rng.below(3) == 0 ? Waits::kNone : Waits::kAll;
    node.trigger = static_cast<Trigger>(rng.below(3));
    for (uint64_t a = 1 + rng.below(3); a > 0; --a) {
      launch::Access access;
      access.buffer = static_cast<uint32_t>(rng.below(4));
      access.begin = rng.below(2) * 128;
      access.end = access.begin + 128;
      access.is_write = rng.below(3) == 0;
      access.phase = rng.below(4) == 0 ? launch::Phase::kPre : launch::Phase::kPost;
      node.accesses.push_back(access);
    }
    if (n > 0) graph.edges.push_back({n - 1, n});
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

TEST(RelaxEdges, RandomChainsStayFreeOfRacesAndNoEdgeIsTooMuch) {
  RngSequence rng(7);
  size_t num_relaxed = 0, num_programmatic = 0;
  for (int i = 0; i < 300; ++i) {
    const launch::Graph graph = random_chain(rng);
    for (const bool allow : {false, true}) {
      const auto edges = relax_edges(graph, allow);
      ASSERT_TRUE(edges) << edges.error().to_string() << edges.error().details;
      launch::Graph relaxed = graph;
      relaxed.edges = *edges;
      EXPECT_TRUE(launch::find_hazards(relaxed).empty());
      num_relaxed += static_cast<size_t>(edges->size() < graph.edges.size());
      for (size_t e = 0; e < edges->size(); ++e) {
        num_programmatic += static_cast<size_t>((*edges)[e].kind == EdgeKind::kProgrammatic);
        launch::Graph less = relaxed;
        less.edges.erase(less.edges.begin() + static_cast<ptrdiff_t>(e));
        EXPECT_FALSE(launch::find_hazards(less).empty());
      }
    }
  }
  EXPECT_GT(num_relaxed, 50U);
  EXPECT_GT(num_programmatic, 50U);
}

}  // namespace
}  // namespace megartp
