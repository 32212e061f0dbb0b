#include "verify/launch/launch_prover.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/launch/launch_test_support.h"

namespace megartp::launch::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> texts(const Graph& g) {
  std::vector<std::string> out;
  for (const Finding& f : prove(g).findings) out.push_back(finding_text(g, f));
  return out;
}

Graph not_transitive() {
  return GraphBuilder()
      .kernel("A", {.trigger = Trigger::kBeforeWait, .pre_writes = {"x"}})
      .kernel("B", {.waits = Waits::kAll, .trigger = Trigger::kBeforeWait, .writes = {"y"}})
      .kernel("C", {.waits = Waits::kAll, .pre_reads = {"x"}, .reads = {"y"}})
      .edge("A", "B")
      .edge("B", "C")
      .graph();
}

TEST(LaunchProver, ACounterExampleIsAnInterleaving) {
  EXPECT_THAT(texts(not_transitive()),
              testing::ElementsAre(
                  "R2 error: RAW: C reads x[0,64) before its wait, and A may not have written it yet; "
                  "B triggers before its own wait has "
                  "returned\n"
                  "    1. A starts\n"
                  "    2. A.cta0 triggers\n"
                  "    3. B starts\n"
                  "    4. B.cta0 triggers before its wait returns\n"
                  "    5. C starts\n"
                  "    6. C reads x[0,64) before A writes it\n"
                  "    passes when C reads it after its wait\n"
                  "             or B waits in every CTA, then executes a gpu-scope release fence, then triggers\n"
                  "             or the edge A -> B is full\n"
                  "             or the edge B -> C is full\n"
                  "             or there is a full edge A -> C\n"));
}

TEST(LaunchProver, EveryEdgeHasAReason) {
  Graph g = not_transitive();
  Proof proof = prove(g);
  ASSERT_THAT(proof.edges, SizeIs(2));
  EXPECT_FALSE(proof.edges[1].holds);
  EXPECT_THAT(proof.edges[1].text,
              HasSubstr("refused: C reads x[0,64) before its wait while A may still have to write it"));
  g.nodes[2].accesses[0].phase = Phase::kPost;
  proof = prove(g);
  EXPECT_TRUE(proof.is_ok());
  EXPECT_THAT(proof.edges[1].text,
              AllOf(HasSubstr("programmatic, because C waits in every CTA before it reads y[0,64)"),
                    HasSubstr("it touches nothing before that")));
  g.edges[1].kind = EdgeKind::kFull;
  EXPECT_THAT(prove(g).edges[1].text, HasSubstr("full, although a programmatic edge would be as safe"));
  g.nodes[2].accesses[1].phase = Phase::kPre;
  EXPECT_THAT(prove(g).edges[1].text,
              HasSubstr("full, because through a programmatic edge C reads y[0,64) before its wait could run while B"));
}

// Kernels that wait first and then touch memory stay safe whatever edges become programmatic and wherever they trigger.
TEST(LaunchProver, WaitingFirstMakesEveryEdgeSafe) {
  RngSequence rng(3);
  for (int round = 0; round < 200; ++round) {
    Graph g = random_graph(rng, 5);
    for (Node& n : g.nodes) {
      n.waits = Waits::kAll;
      for (Access& a : n.accesses) {
        a.phase = Phase::kPost;
        a.means = Means::kGeneric;
        a.before_trigger = false;
      }
    }
    for (Edge& e : g.edges) e.kind = EdgeKind::kFull;
    const size_t with_full = find_hazards(g).size();
    for (Edge& e : g.edges)
      if (rng.below(2) == 0) e.kind = EdgeKind::kProgrammatic;
    EXPECT_EQ(find_hazards(g).size(), with_full) << round;
  }
}

TEST(LaunchProver, AKernelThatNeverWaitsIsBlamedOnlyWhereItMatters) {
  Graph g = GraphBuilder()
                .kernel("A", {.trigger = Trigger::kBeforeWait, .pre_writes = {"x"}})
                .kernel("B", {.pre_writes = {"y"}})
                .edge("A", "B")
                .graph();
  const Proof proof = prove(g);
  EXPECT_TRUE(proof.is_ok());
  ASSERT_THAT(proof.findings, SizeIs(1));
  EXPECT_EQ(proof.findings[0].rule, Rule::kR1);
  EXPECT_EQ(proof.findings[0].severity, Severity::kWarning);
}

TEST(LaunchProver, OnlyTheBytesThatOverlapCount) {
  Graph g = not_transitive();
  g.buffers[0].num_bytes = 256;
  g.nodes[2].accesses[0].begin = 64;
  g.nodes[2].accesses[0].end = 128;
  EXPECT_THAT(find_hazards(g), IsEmpty());
  g.nodes[2].accesses[0].begin = 63;
  ASSERT_THAT(find_hazards(g), SizeIs(1));
  EXPECT_EQ(find_hazards(g)[0].begin, 63U);
  EXPECT_EQ(find_hazards(g)[0].end, 64U);
}

TEST(LaunchProver, FindingsBeyondTheLimitAreCounted) {
  GraphBuilder b;
  for (int i = 0; i < 8; ++i) b.kernel(fmt::format("k{}", i), {.pre_writes = {"x"}});
  const Proof all = prove(b.graph());
  EXPECT_THAT(all.findings, SizeIs(28));
  const Proof few = prove(b.graph(), {.max_findings = 5});
  EXPECT_THAT(few.findings, SizeIs(5));
  EXPECT_EQ(few.num_left_out, 23U);
  EXPECT_FALSE(few.is_ok());
}

TEST(LaunchProver, CtasPerSmFollowsTheScarcestResource) {
  Graph g;
  g.buffers.push_back({"x", 64});
  Node node;
  node.name = "gemm";
  node.grid = 264;
  node.is_cooperative = true;
  node.threads = 256;
  node.registers = 96;  // 24576 of 65536 a CTA: two fit
  g.nodes.push_back(node);
  EXPECT_TRUE(prove(g).is_ok());
  g.nodes[0].registers = 168;
  EXPECT_THAT(texts(g).at(0), AllOf(HasSubstr("R10 error"), HasSubstr("264"), HasSubstr("132")));
  g.nodes[0].registers = 96;
  g.nodes[0].smem_bytes = 120'000;
  EXPECT_FALSE(prove(g).is_ok());
  g.nodes[0].threads = 0;
  EXPECT_THAT(texts(g).at(0), HasSubstr("does not say how many fit"));
}

// A decode step of thousands of launches is proved in well under a second.
TEST(LaunchProver, ThousandsOfKernelsAreQuick) {
  Graph g;
  constexpr uint32_t kKernels = 3000;
  constexpr uint32_t kBuffers = 64;  // reused in turn
  for (uint32_t b = 0; b < kBuffers; ++b) g.buffers.push_back({fmt::format("h{}", b), 64});
  g.buffers.push_back({"w", 1 << 20});
  for (uint32_t n = 0; n < kKernels; ++n) {
    Node node;
    node.name = fmt::format("k{}", n);
    node.waits = Waits::kAll;
    node.trigger = Trigger::kBeforeWait;
    node.accesses = {{.buffer = n % kBuffers, .end = 64, .phase = Phase::kPost},
                     {.buffer = (n + 1) % kBuffers, .end = 64, .is_write = true, .phase = Phase::kPost},
                     {.buffer = kBuffers, .end = 1 << 20, .phase = Phase::kPre}};
    g.nodes.push_back(node);
    if (n > 0) g.edges.push_back({n - 1, n, EdgeKind::kProgrammatic});
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(prove(g).is_ok());
  const auto end = std::chrono::steady_clock::now();
  fmt::print("{} kernels: {} ms\n", kKernels,
             std::chrono::duration_cast<std::chrono::milliseconds>(end - begin).count());
  g.nodes[1500].accesses[1].phase = Phase::kPre;
  EXPECT_FALSE(find_hazards(g).empty());
}

}  // namespace
}  // namespace megartp::launch::test
