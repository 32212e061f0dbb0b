// The prover against exhaustive execution: the same races for every graph, and so the same verdict.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "verify/launch/launch_explore.h"
#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"
#include "verify/launch/launch_story.h"
#include "verify/launch/launch_test_support.h"

namespace megartp::launch::test {
namespace {

struct Counts {
  uint64_t graphs = 0, harmful = 0, harmful_passed = 0, harmless_refused = 0, races = 0, states = 0, too_large = 0;

  void print(const char* what) const {
    fmt::print(
        "{}: {} graphs, {} harmful ({} of them passed), {} harmless ({} of them refused); {} races, each with a "
        "counter-example that runs; {} states\n",
        what, graphs, harmful, harmful_passed, graphs - harmful, harmless_refused, races, states);
    if (too_large != 0) fmt::print("{}: {} graphs with too many states left out\n", what, too_large);
  }
};

std::string text_of(const Graph& g, const std::vector<Conflict>& list) {
  std::string text;
  for (const Conflict& c : list)
    text += fmt::format(" {}.{}-{}.{}", g.nodes[c.first].name, c.first_access, g.nodes[c.second].name, c.second_access);
  return text;
}

void compare(const Graph& g, const std::string& what, Counts& counts) {
  ASSERT_TRUE(check_graph(g)) << what;
  const auto run = explore(g, {.max_ctas = 2, .max_states = 400'000});
  ASSERT_TRUE(run) << run.error().to_string();
  if (!run->is_complete) {
    ++counts.too_large;
    return;
  }
  const std::vector<Conflict> hazards = find_hazards(g);
  ++counts.graphs;
  counts.states += run->num_states;
  counts.races += run->races.size();
  // The verdict alone: remedies and lines about edges do not change it.
  const bool is_ok = prove(g, {.max_explained = 0, .max_flips = 0}).is_ok();
  const bool is_harmful = !run->races.empty();
  counts.harmful += is_harmful;
  counts.harmful_passed += is_harmful && is_ok;
  counts.harmless_refused += !is_harmful && !is_ok;
  EXPECT_EQ(text_of(g, hazards), text_of(g, run->races)) << what << "\n" << to_json(g);
  for (const Conflict& c : hazards) {
    const auto raced = replay_story(g, c, tell_story(g, c));
    ASSERT_TRUE(raced) << what << text_of(g, {c}) << ": " << raced.error().to_string() << "\n" << to_json(g);
    EXPECT_TRUE(*raced) << what << text_of(g, {c}) << "\n" << to_json(g);
  }
}

void compare_mutants(const Graph& g, const std::string& what, Counts& counts) {
  compare(g, what, counts);
  for (const Mutant& m : all_mutants(g)) {
    compare(m.graph, fmt::format("{}, {}", what, m.change), counts);
    if (testing::Test::HasFailure()) return;
  }
}

void expect_agreement(const Counts& counts) {
  EXPECT_EQ(counts.harmful_passed, 0U);
  EXPECT_EQ(counts.harmless_refused, 0U);
  // Neither verdict is rare, or the test would say little.
  EXPECT_GT(counts.harmful, counts.graphs / 20);
  EXPECT_GT(counts.graphs - counts.harmful, counts.graphs / 20);
}

// What the interpreter can judge: races, not room, code or counters.
bool is_about_races_only(const Graph& g) {
  for (const Buffer& b : g.buffers)
    if (b.kind == BufferKind::kCounter) return false;
  for (const Node& n : g.nodes)
    if (n.is_cooperative || !n.spins_on.empty() || !n.is_inspected || n.code_waits) return false;
  for (const Edge& e : g.edges)
    if (g.nodes[e.from].priority != g.nodes[e.to].priority ||
        (e.kind != EdgeKind::kFull &&
         (g.nodes[e.from].kind != NodeKind::kKernel || g.nodes[e.to].kind != NodeKind::kKernel)))
      return false;
  return g.replay_streams == 1 && g.nodes.size() <= kMaxExploredNodes;
}

TEST(LaunchMutation, EveryChangeOfThePatternsIsJudgedAsExecutionJudgesIt) {
  Counts counts;
  uint64_t num_bases = 0;
  for (const std::string& name : fault_names())
    for (const char* suffix : {".json", ".ok.json"}) {
      const auto input = launch_from_json(read_file(fault_path(name + suffix)).value());
      ASSERT_TRUE(input) << name << ": " << input.error().to_string();
      const Graph g = to_graph(*input).value().graph;
      if (!is_about_races_only(g)) continue;
      ++num_bases;
      compare_mutants(g, name + suffix, counts);
      if (HasFailure()) return;
    }
  counts.print(fmt::format("single changes of {} patterns", num_bases).c_str());
  EXPECT_GT(num_bases, 40U);
  EXPECT_EQ(counts.too_large, 0U);
  expect_agreement(counts);
}

TEST(LaunchMutation, EveryChangeOfRandomGraphsIsJudgedAsExecutionJudgesIt) {
  Counts counts;
  RngSequence rng(20240611);
  constexpr int kGraphs = 200;
  for (int i = 0; i < kGraphs; ++i) {
    compare_mutants(random_graph(rng, 4), fmt::format("random graph {}", i), counts);
    if (HasFailure()) return;
  }
  counts.print(fmt::format("single changes of {} random graphs of 2 to 4 kernels", kGraphs).c_str());
  expect_agreement(counts);
}

TEST(LaunchMutation, RandomGraphsOfFiveKernelsAreJudgedAsExecutionJudgesThem) {
  Counts counts;
  RngSequence rng(42);
  for (int i = 0; i < 2000; ++i) {
    compare(random_graph(rng, 5), fmt::format("random graph {}", i), counts);
    if (HasFailure()) return;
  }
  counts.print("random graphs of 2 to 5 kernels");
  expect_agreement(counts);
}

}  // namespace
}  // namespace megartp::launch::test
