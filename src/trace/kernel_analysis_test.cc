// What the analysis says of kernels whose CTAs share SMs and overlap along edges of every level: traces made by hand.
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/analysis.h"
#include "trace/dependencies.h"
#include "trace/from_kernels.h"

namespace megartp::trace {
namespace {

using ::testing::ElementsAre;

struct HandEdge {
  uint32_t from, to;
  EdgeLevel level;
};
struct HandCta {
  uint32_t kernel, sm;
  uint64_t enter, inputs, done;
};

LaunchPlan hand_plan(uint32_t num_kernels, const std::vector<HandEdge>& edges, const std::vector<HandCta>& ctas) {
  LaunchPlan plan;
  plan.name = "by hand";
  for (uint32_t k = 0; k < num_kernels; ++k) {
    LaunchKernel kernel;
    kernel.name = std::string(1, static_cast<char>('A' + k));
    kernel.kernel.grid[0] =
        static_cast<uint32_t>(std::ranges::count_if(ctas, [k](const HandCta& c) { return c.kernel == k; }));
    plan.kernels.push_back(std::move(kernel));
  }
  for (const HandEdge& e : edges) {
    LaunchEdge edge;
    edge.from = e.from;
    edge.to = e.to;
    edge.level = e.level;
    edge.kind = e.level == EdgeLevel::kFull ? launch::EdgeKind::kFull : launch::EdgeKind::kProgrammatic;
    plan.edges.push_back(std::move(edge));
  }
  return plan;
}

// `ctas` sorted by kernel.
Trace hand_trace(uint32_t num_kernels, const std::vector<HandEdge>& edges, const std::vector<HandCta>& ctas,
                 std::vector<abi::TraceRoleRecord> roles = {}) {
  const LaunchPlan plan = hand_plan(num_kernels, edges, ctas);
  RawTrace raw;
  raw.clock_domain = "%globaltimer";
  uint32_t cta = 0;
  for (size_t i = 0; i < ctas.size(); ++i) {
    cta = i > 0 && ctas[i - 1].kernel == ctas[i].kernel ? cta + 1 : 0;
    raw.ctas.push_back({ctas[i].enter, ctas[i].inputs, ctas[i].done, ctas[i].sm, cta, {}});
    raw.end = std::max(raw.end, ctas[i].done);
  }
  raw.roles = std::move(roles);
  auto trace = trace_of_launch(plan, raw, {});
  EXPECT_TRUE(trace) << trace.error().to_string();
  return std::move(*trace);
}

std::vector<std::string> links_of(const Trace& t) {
  std::vector<std::string> links;
  for (const CriticalLink& l : analyse(t).critical)
    links.push_back(fmt::format("{}{} {} {}..{}", t.ops[t.tasks[l.task].op].name, t.tasks[l.task].id, to_string(l.kind),
                                l.begin_ns, l.end_ns));
  return links;
}
// Without reasons that took no time.
std::vector<std::string> idle_of(const Trace& t) {
  const Analysis a = analyse(t);
  std::vector<std::string> idle{fmt::format("busy {}", a.busy_ns)};
  for (uint32_t r = 0; r < kIdleReasons; ++r)
    if (a.idle_ns[r] != 0) idle.push_back(fmt::format("{} {}", to_string(static_cast<IdleReason>(r)), a.idle_ns[r]));
  return idle;
}

// A on SMs 0 and 1, ends at 140; B on SM 0.
TEST(KernelAnalysis, AFullEdgeIsALaunchAfterTheProducer) {
  const Trace t =
      hand_trace(2, {{0, 1, EdgeLevel::kFull}}, {{0, 0, 0, 5, 100}, {0, 1, 0, 5, 140}, {1, 0, 200, 230, 400}});
  EXPECT_THAT(links_of(t),
              ElementsAre("A1 launch 0..5", "A1 compute 5..140", "B0 launch 140..230", "B0 compute 230..400"));
  EXPECT_THAT(idle_of(t), ElementsAre("busy 400", "start of the run 10", "wait for producers 40",
                                      "launch of a kernel 90", "no work left 260"));
}

// The same, but B is there at 50 and waits: whatever the level, that is waiting for A.
TEST(KernelAnalysis, AProgrammaticEdgeIsAWait) {
  for (const EdgeLevel level : {EdgeLevel::kEnterOnly, EdgeLevel::kPrologue, EdgeLevel::kPrefetch}) {
    const Trace t = hand_trace(2, {{0, 1, level}}, {{0, 0, 0, 5, 100}, {0, 1, 0, 5, 140}, {1, 0, 50, 170, 400}});
    EXPECT_EQ(t.kernel_edges[0].level, to_string(level));
    EXPECT_THAT(links_of(t),
                ElementsAre("A1 launch 0..5", "A1 compute 5..140", "B0 wait 140..170", "B0 compute 170..400"));
    EXPECT_THAT(idle_of(t), ElementsAre("busy 460", "start of the run 10", "wait for producers 40", "event latency 30",
                                        "no work left 260"));
    EXPECT_EQ(t.lanes.size(), 3U) << "B's CTA overlaps with A's on SM 0";
  }
}

TEST(KernelAnalysis, WeightsThatComeWhileACtaWaitsAreNoLostTime) {
  const Trace t = hand_trace(2, {{0, 1, EdgeLevel::kPrefetch}}, {{0, 0, 0, 0, 140}, {1, 1, 50, 170, 400}},
                             {{1, 0, abi::kTraceRoleWeights, 0, 60, 120},
                              {1, 0, abi::kTraceRoleWeights, 0, 170, 300},
                              {1, 0, abi::kTraceRoleCompute, 0, 200, 390}});
  EXPECT_THAT(links_of(t),
              ElementsAre("A0 compute 0..140", "B0 wait 140..170", "B0 weights 170..200", "B0 compute 200..400"));
  EXPECT_THAT(idle_of(t), ElementsAre("busy 370", "wait for producers 80", "event latency 30",
                                      "wait while weights come 60", "no work left 260"));
}

// Programmatic, but the kernel came only after its producer: a join, or no room.
TEST(KernelAnalysis, ALateProgrammaticKernelWasLaunched) {
  const Trace t = hand_trace(2, {{0, 1, EdgeLevel::kPrefetch}}, {{0, 0, 0, 0, 140}, {1, 1, 150, 170, 400}});
  EXPECT_THAT(links_of(t), ElementsAre("A0 compute 0..140", "B0 launch 140..170", "B0 compute 170..400"));
}

// Three CTAs of B on an SM that holds one: the second and the third wait for room, not for A.
TEST(KernelAnalysis, ACtaThatFoundNoRoomWaitsForTheOneBeforeIt) {
  const Trace t = hand_trace(2, {{0, 1, EdgeLevel::kPrefetch}},
                             {{0, 0, 0, 0, 100}, {1, 1, 20, 120, 200}, {1, 1, 205, 210, 300}, {1, 1, 302, 310, 390}});
  EXPECT_THAT(links_of(t),
              ElementsAre("A0 compute 0..100", "B0 wait 100..120", "B0 compute 120..200", "B1 queue 200..210",
                          "B1 compute 210..300", "B2 queue 300..310", "B2 compute 310..390"));
  EXPECT_THAT(idle_of(t), ElementsAre("busy 350", "between tasks 20", "wait for producers 100", "event latency 20",
                                      "no work left 290"));
}

// X leaves SM 1 before C's first CTA enters on SM 0, so C's second had room all the time: it waited for A.
TEST(KernelAnalysis, ACtaDidNotWaitForOneThatLeftBeforeItsKernelCame) {
  const std::vector<HandCta> ctas{{0, 0, 0, 0, 150}, {1, 1, 0, 0, 160}, {2, 0, 170, 180, 250}, {2, 1, 175, 185, 300}};
  const Trace t = hand_trace(3, {{0, 2, EdgeLevel::kFull}}, ctas);
  EXPECT_THAT(links_of(t), ElementsAre("A0 compute 0..150", "C1 launch 150..185", "C1 compute 185..300"));
  const std::vector<uint64_t> slack = analyse(t).slack_ns;
  EXPECT_EQ(slack[0], 0U) << "A";
  EXPECT_EQ(slack[2], 140U) << "B may end when the run does";
}

TEST(KernelAnalysis, AJoinWaitsForTheProducerThatEndsLast) {
  const Trace t = hand_trace(3, {{0, 2, EdgeLevel::kPrefetch}, {1, 2, EdgeLevel::kFull}},
                             {{0, 0, 0, 0, 100}, {1, 1, 0, 0, 130}, {2, 2, 150, 160, 200}});
  EXPECT_THAT(links_of(t), ElementsAre("B0 compute 0..130", "C0 launch 130..160", "C0 compute 160..200"));
}

// CTAs of two kernels compute on one SM at once: the SM is busy once, the ops overlap.
TEST(KernelAnalysis, AnSmIsBusyOnceHoweverManyCtasCompute) {
  const Trace t = hand_trace(2, {{0, 1, EdgeLevel::kPrefetch}},
                             {{0, 0, 0, 0, 100}, {0, 0, 0, 0, 100}, {1, 0, 10, 60, 120}, {1, 0, 10, 110, 130}});
  const Analysis a = analyse(t);
  EXPECT_EQ(a.num_units, 1U);
  EXPECT_EQ(a.busy_ns, 130U);
  EXPECT_EQ(t.lanes.size(), 4U);
  ASSERT_EQ(a.overlaps.size(), 1U);
  EXPECT_EQ(a.overlaps[0].ns, 40U);
  EXPECT_EQ(a.ops[0].busy_ns, 200U);
  EXPECT_EQ(a.ops[0].running_ns, 100U);
}

TEST(KernelAnalysis, LinksAndIdleTimesAddUpWhateverTheCtasDid) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](uint64_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t num_kernels = 2 + below(5);
    std::vector<HandEdge> edges;
    for (uint32_t k = 1; k < num_kernels; ++k)
      for (uint32_t from = 0; from < k; ++from)
        if (from + 1 == k || below(3) == 0) edges.push_back({from, k, static_cast<EdgeLevel>(below(4))});
    std::vector<HandCta> ctas;
    std::vector<uint64_t> ends(num_kernels);
    for (uint32_t k = 0; k < num_kernels; ++k) {
      uint64_t met = 0, launched = 0;
      for (const HandEdge& e : edges) {
        if (e.to != k) continue;
        met = std::max(met, ends[e.from]);
        if (e.level == EdgeLevel::kFull) launched = std::max(launched, ends[e.from]);
      }
      for (uint32_t i = 1 + below(6); i > 0; --i) {
        const uint64_t enter = launched + below(80);
        const uint64_t inputs = std::max(enter, met) + below(20);
        ctas.push_back({k, below(4), enter, inputs, inputs + below(100)});
        ends[k] = std::max(ends[k], ctas.back().done);
      }
    }
    if (std::ranges::all_of(ends, [](uint64_t end) { return end == 0; })) continue;
    for (HandCta& c : ctas) c.done = std::max<uint64_t>(c.done, 1);  // 0: no record
    const Trace t = hand_trace(num_kernels, edges, ctas);
    const Analysis a = analyse(t);
    EXPECT_EQ(a.critical_ns(), t.meta.span_ns) << "seed " << seed;
    uint64_t at = 0;
    for (const CriticalLink& l : a.critical) {
      EXPECT_EQ(l.begin_ns, at) << "seed " << seed;
      at = l.end_ns;
      EXPECT_EQ(a.slack_ns[l.task], 0U) << "seed " << seed;
    }
    const uint64_t idle = std::accumulate(std::begin(a.idle_ns), std::end(a.idle_ns), uint64_t{0});
    EXPECT_EQ(a.busy_ns + idle, t.meta.span_ns * a.num_units) << "seed " << seed;
  }
}

}  // namespace
}  // namespace megartp::trace
