#include "verify/launch/launch_explore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/launch/launch_story.h"
#include "verify/launch/launch_test_support.h"

namespace megartp::launch::test {
namespace {

using Contract = GraphBuilder::Contract;

size_t num_races(const Graph& g) {
  EXPECT_TRUE(check_graph(g));
  const auto run = explore(g);
  EXPECT_TRUE(run);
  EXPECT_TRUE(run->is_complete);
  return run->races.size();
}

// A writes x, C reads it through a chain A -> B -> C of programmatic edges.
Graph chain(Waits b_waits, Trigger b_trigger, const Contract& c) {
  return GraphBuilder()
      .kernel("A", {.trigger = Trigger::kBeforeWait, .pre_writes = {"x"}})
      .kernel("B", {.waits = b_waits, .trigger = b_trigger, .pre_writes = {"y"}})
      .kernel("C", c)
      .edge("A", "B")
      .edge("B", "C")
      .graph();
}

TEST(LaunchExplore, TheWaitPassesCompletionOnTheTriggerDoesNot) {
  const Contract post{.waits = Waits::kAll, .reads = {"x"}};
  const Contract pre{.waits = Waits::kAll, .pre_reads = {"x"}};
  EXPECT_EQ(num_races(chain(Waits::kAll, Trigger::kBeforeWait, post)), 0U);
  EXPECT_EQ(num_races(chain(Waits::kNone, Trigger::kBeforeWait, post)), 1U);
  EXPECT_EQ(num_races(chain(Waits::kSome, Trigger::kAfterWait, post)), 1U);
  EXPECT_EQ(num_races(chain(Waits::kAll, Trigger::kBeforeWait, pre)), 1U);
  // In time, but nothing makes it visible.
  EXPECT_EQ(num_races(chain(Waits::kAll, Trigger::kAfterWait, pre)), 1U);
  Graph fenced = chain(Waits::kAll, Trigger::kAfterWait, pre);
  fenced.nodes[1].fence = Fence::kGpu;
  EXPECT_EQ(num_races(fenced), 0U);
  // A store needs the time only.
  EXPECT_EQ(num_races(chain(Waits::kAll, Trigger::kAfterWait, {.waits = Waits::kAll, .pre_writes = {"x"}})), 0U);
}

TEST(LaunchExplore, AnExitTriggersButDoesNotFlush) {
  const auto graph = [](bool writes_first, Trigger trigger) {
    Contract a{.trigger = trigger};
    (writes_first ? a.pre_writes : a.pre_reads) = {"x"};
    return GraphBuilder().kernel("A", a).kernel("B", {.pre_writes = {"x"}}).edge("A", "B").graph();
  };
  EXPECT_EQ(num_races(graph(true, Trigger::kNone)), 1U);
  EXPECT_EQ(num_races(graph(false, Trigger::kNone)), 0U);
  EXPECT_EQ(num_races(graph(false, Trigger::kBeforeWait)), 1U);
}

TEST(LaunchExplore, AFencePublishesWhatPrecedesTheTriggerOfEveryCta) {
  Graph g = GraphBuilder()
                .kernel("A", {.trigger = Trigger::kBeforeWait, .pre_writes = {"x"}})
                .kernel("B", {.pre_reads = {"x"}})
                .edge("A", "B")
                .graph();
  g.nodes[0].grid = 2;
  g.nodes[0].fence = Fence::kGpu;
  EXPECT_EQ(num_races(g), 1U);
  g.nodes[0].accesses[0].before_trigger = true;
  EXPECT_EQ(num_races(g), 0U);
  g.nodes[1].accesses[0].means = Means::kTma;
  EXPECT_EQ(num_races(g), 1U);
  g.nodes[0].proxy_fence = true;
  EXPECT_EQ(num_races(g), 0U);
  g.nodes[1].sync_domain = 1;
  EXPECT_EQ(num_races(g), 1U);
}

TEST(LaunchExplore, FewerInterleavingsShowTheSameRaces) {
  RngSequence rng(7);
  uint64_t reduced_states = 0, all_states = 0, races = 0;
  for (int i = 0; i < 60; ++i) {
    Graph g = random_graph(rng, 3);
    for (Node& n : g.nodes) n.grid = g.nodes.size() == 2 ? 2 : 1;
    const Exploration reduced = explore(g).value();
    const Exploration all = explore(g, {.is_reduced = false}).value();
    ASSERT_TRUE(all.is_complete);
    ASSERT_EQ(reduced.races.size(), all.races.size()) << i;
    for (size_t r = 0; r < all.races.size(); ++r) {
      EXPECT_EQ(reduced.races[r].first_access, all.races[r].first_access) << i;
      EXPECT_EQ(reduced.races[r].second_access, all.races[r].second_access) << i;
    }
    reduced_states += reduced.num_states;
    all_states += all.num_states;
    races += all.races.size();
  }
  EXPECT_GT(races, 20U);
  EXPECT_LT(reduced_states * 2, all_states);
}

TEST(LaunchExplore, SaysWhenItGivesUp) {
  Graph g = chain(Waits::kNone, Trigger::kNone, {.pre_reads = {"x"}});
  EXPECT_FALSE(explore(g, {.max_states = 3})->is_complete);
  GraphBuilder large;
  for (size_t i = 0; i <= kMaxExploredNodes; ++i) large.kernel(std::string(i + 1, 'k'), {});
  ASSERT_FALSE(explore(large.graph()));
  EXPECT_EQ(explore(large.graph()).error().code, ErrorCode::kUnsupported);
}

TEST(LaunchExplore, AStoryOutOfOrderDoesNotRun) {
  const Graph g = chain(Waits::kNone, Trigger::kBeforeWait, {.waits = Waits::kAll, .reads = {"x"}});
  const Conflict c = find_conflicts(g).at(0);
  std::vector<Step> story = tell_story(g, c);
  ASSERT_TRUE(replay_story(g, c, story).value());
  std::swap(story.front(), story.back());
  EXPECT_FALSE(replay_story(g, c, story));
  // Without a race the same steps run and show none.
  const Graph safe = chain(Waits::kAll, Trigger::kBeforeWait, {.waits = Waits::kAll, .reads = {"x"}});
  EXPECT_FALSE(replay_story(safe, c, tell_story(safe, c)).value());
}

}  // namespace
}  // namespace megartp::launch::test
