// The oracle notices what it is there to notice: graphs that are right, broken in one place each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/box_stage.h"
#include "partition/partition_graph.h"
#include "support/dependency_oracle.h"

namespace megartp::test {
namespace {

using lowering::testing::BoxGraph;
using lowering::testing::BoxTile;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// P4 -> C2 over t and D2 -> E2 over v; tasks 0..3, 4..5, 6..7, 8..9.
TaskGraph two_chains() {
  PartitionGraph g;
  g.ops.push_back({"P", {4, 1, 1}, {}, {{"t", {0, -1, -1}}}});
  g.ops.push_back({"C", {2, 1, 1}, {{"t", {0, -1, -1}}}, {{"u", {0, -1, -1}}}});
  g.ops.push_back({"D", {2, 1, 1}, {}, {{"v", {0, -1, -1}}}});
  g.ops.push_back({"E", {2, 1, 1}, {{"v", {0, -1, -1}}}, {{"w", {0, -1, -1}}}});
  return lower_partition_graph(g).value();
}

TEST(DependencyOracle, AcceptsWhatIsRight) {
  EXPECT_THAT(dependency_problems(two_chains(), {.no_coarser = true}), IsEmpty());
}

TEST(DependencyOracle, NamesAPairThatIsNotOrdered) {
  TaskGraph g = two_chains();
  // Task 5 waits for E's producer instead of its own.
  const uint32_t own = g.tasks[5].waits[0].event;
  g.tasks[5].waits[0] = g.tasks[4].waits[0];
  --g.events[own].num_consumers;
  ++g.events[g.tasks[4].waits[0].event].num_consumers;
  EXPECT_THAT(dependency_problems(g), Contains(HasSubstr("event 1 has 0 waiting tasks")));
  g.tasks[9].waits[g.tasks[9].num_waits++] = {own, g.events[own].threshold};
  ++g.events[own].num_consumers;
  EXPECT_THAT(dependency_problems(g),
              testing::ElementsAre("task 5 (op C tile 1) is not after task 2 (op P tile 2) on tensor t",
                                   "task 5 (op C tile 1) is not after task 3 (op P tile 3) on tensor t"));
  EXPECT_THAT(dependency_problems(g, {.max_problems = 1}), testing::SizeIs(1));
}

TEST(DependencyOracle, NamesAWaitThatNothingAsksFor) {
  TaskGraph g = two_chains();
  const abi::Wait foreign = g.tasks[4].waits[0];
  g.tasks[9].waits[g.tasks[9].num_waits++] = foreign;
  ++g.events[foreign.event].num_consumers;
  EXPECT_THAT(dependency_problems(g), IsEmpty()) << "more order is not wrong";
  EXPECT_THAT(
      dependency_problems(g, {.no_coarser = true}),
      testing::ElementsAre("task 9 (op E tile 1) waits for task 0 (op P tile 0) (event 0), which no overlap asks for"));
}

TEST(DependencyOracle, ComparesThresholdsSignalsAndParts) {
  TaskGraph wait = two_chains();
  wait.tasks[4].waits[0].threshold = 1;
  EXPECT_THAT(dependency_problems(wait),
              Contains(HasSubstr("task 4 (op C tile 0) waits for 1 of event 0, whose threshold is 2")));
  TaskGraph threshold = two_chains();
  threshold.events[0].threshold = threshold.tasks[4].waits[0].threshold = 3;
  EXPECT_THAT(dependency_problems(threshold), Contains(HasSubstr("event 0 has threshold 3, its signals add up to 2")));
  TaskGraph signal = two_chains();
  signal.tasks[0].num_signals = 0;
  EXPECT_THAT(dependency_problems(signal), Contains(HasSubstr("event 0 has threshold 2, its signals add up to 1")));
  // Sums can be right and yet of the wrong tasks.
  TaskGraph swapped = two_chains();
  std::swap(swapped.tasks[0].signals[0], swapped.tasks[2].signals[0]);
  EXPECT_THAT(dependency_problems(swapped),
              Contains(HasSubstr("event 0 counts 1 units of task 0 (op P tile 0), which sends 0")));
  TaskGraph part = two_chains();
  part.unit_intervals[part.event_parts[part.events[0].first_part].first_interval].end = 99;
  EXPECT_THAT(dependency_problems(part), Contains("event 0 has a part that does not exist"));
  TaskGraph twice = two_chains();
  twice.tasks[4].waits[twice.tasks[4].num_waits++] = twice.tasks[4].waits[0];
  EXPECT_THAT(dependency_problems(twice), Contains(HasSubstr("waits twice for event 0")));
}

TEST(DependencyOracle, WantsTopologicalIds) {
  TaskGraph g = two_chains();
  const abi::Wait late = g.tasks[8].waits[0];
  g.tasks[0].waits[g.tasks[0].num_waits++] = late;
  ++g.events[late.event].num_consumers;
  EXPECT_THAT(
      dependency_problems(g),
      Contains(HasSubstr("task 0 (op P tile 0) waits for event 2, which the later task 6 (op D tile 0) signals")));
}

// A stage of two groups with a final tile each, and a reader of each result.
BoxGraph fused() {
  BoxGraph g;
  const TensorId gate = g.add_tensor({2});
  const TensorId out = g.add_tensor({2});
  const TensorId sink = g.add_tensor({2});
  const auto at = [](TensorId t, int64_t i) { return Access{t, Box::of({{i, i + 1}})}; };
  g.add_stage({{{}, {at(gate, 0)}}, {{}, {at(gate, 1)}}});
  g.add_stage({{{}, {}, 0}, {{}, {}, 0}, {{}, {}, 1}},
              {{{at(gate, 0)}, {at(out, 0)}, 0}, {{at(gate, 1)}, {at(out, 1)}, 1}});
  g.add_stage({{{at(out, 0)}, {at(sink, 0)}}, {{at(out, 1)}, {at(sink, 1)}}});
  EXPECT_TRUE(g.derive());
  return g;
}

TEST(DependencyOracle, FollowsJoinGroups) {
  EXPECT_THAT(dependency_problems(fused().tasks, {.no_coarser = true}), IsEmpty());
  BoxGraph one_waits = fused();
  TaskGraph& g = one_waits.tasks;
  // Tasks 2 and 3 are group 0. One of them that waits is enough for the final tile; none is not.
  const uint32_t event = g.tasks[2].waits[0].event;
  g.tasks[2].num_waits = 0;
  --g.events[event].num_consumers;
  EXPECT_THAT(dependency_problems(g), IsEmpty());
  g.tasks[3].waits[0] = g.tasks[4].waits[0];
  ++g.events[g.tasks[4].waits[0].event].num_consumers;
  g.tasks[5].waits[g.tasks[5].num_waits++] = {event, g.events[event].threshold};
  EXPECT_THAT(dependency_problems(g), Contains(HasSubstr("is not after task 0 (op S0 tile 0) on tensor t0")));
  BoxGraph uneven = fused();
  uneven.tasks.tasks[3].num_signals = 0;
  EXPECT_THAT(dependency_problems(uneven.tasks), Contains(HasSubstr("of one join group send different signals")));
}

TEST(DependencyOracle, SeesThatAnEarlyPublicationIsNotTheEnd) {
  BoxGraph g;
  const TensorId q = g.add_tensor({1});
  const TensorId y = g.add_tensor({1});
  const TensorId sink = g.add_tensor({2});
  const Box one = Box::of({{0, 1}});
  g.add_stage({{{}, {{q, one, 0}, {y, one, 1}}}});
  g.add_stage({{{{q, one}}, {{sink, Box::of({{0, 1}})}}}, {{{y, one}}, {{sink, Box::of({{1, 2}})}}}});
  ASSERT_TRUE(g.derive());
  TaskGraph& tasks = g.tasks;
  EXPECT_THAT(dependency_problems(tasks), IsEmpty());
  std::swap(tasks.tasks[1].waits[0], tasks.tasks[2].waits[0]);
  EXPECT_THAT(dependency_problems(tasks),
              testing::ElementsAre("task 2 (op S1 tile 1) is not after task 0 (op S0 tile 0) on tensor t1"));
}

// A4 -> relay -> C2, where every C reads all of A.
TaskGraph relayed() {
  BoxGraph g;
  const TensorId a = g.add_tensor({4});
  const TensorId c = g.add_tensor({2});
  std::vector<BoxTile> producers;
  for (int64_t i = 0; i < 4; ++i) producers.push_back({{}, {{a, Box::of({{i, i + 1}})}}});
  g.add_stage(producers);
  g.add_stage({BoxTile{}});
  g.add_stage(
      {{{{a, Box::of({{0, 4}})}}, {{c, Box::of({{0, 1}})}}}, {{{a, Box::of({{0, 4}})}}, {{c, Box::of({{1, 2}})}}}});
  EXPECT_TRUE(g.derive());
  TaskGraph tasks = std::move(g.tasks);
  tasks.stages[1].stage->opcode = abi::kOpcodeRelay;
  tasks.events.push_back({1, 0, 1, 2, 0, 0});  // no parts: the relay alone signals it
  tasks.events[0].num_consumers = 1;
  Task& relay = tasks.tasks[4];
  relay.waits[relay.num_waits++] = tasks.tasks[5].waits[0];
  relay.signals[relay.num_signals++] = abi::make_signal(1, 1, 0);
  for (const uint32_t t : {5U, 6U}) tasks.tasks[t].waits[0] = {1, 1};
  return tasks;
}

TEST(DependencyOracle, LooksThroughRelays) {
  EXPECT_THAT(dependency_problems(relayed(), {.no_coarser = true}), IsEmpty());
  TaskGraph broken = relayed();
  broken.tasks[4].num_waits = 0;
  broken.tasks[6].waits[broken.tasks[6].num_waits++] = {0, 4};
  EXPECT_THAT(dependency_problems(broken),
              Contains("task 5 (op S2 tile 0) is not after task 0 (op S0 tile 0) on tensor t0"));
  TaskGraph stray = relayed();
  stray.tasks[0].signals[stray.tasks[0].num_signals++] = abi::make_signal(1, 1, 0);
  stray.events[1].threshold = 2;
  for (const uint32_t t : {5U, 6U}) stray.tasks[t].waits[0].threshold = 2;
  EXPECT_THAT(dependency_problems(stray), Contains("event 1 counts no unit, but task 0 (op S0 tile 0) signals it"));
}

TEST(DependencyOracle, CountsASilentOperandAsReadWhole) {
  BoxGraph g;
  const TensorId a = g.add_tensor({2});
  const TensorId b = g.add_tensor({1});
  g.add_stage({{{}, {{a, Box::of({{0, 1}})}}}, {{}, {{a, Box::of({{1, 2}})}}}});
  g.add_stage({{{}, {{b, Box::of({{0, 1}})}}}});
  ASSERT_TRUE(g.derive());
  EXPECT_THAT(dependency_problems(g.tasks), IsEmpty());
  g.tasks.stages[1].stage->slots.push_back(a);
  EXPECT_THAT(dependency_problems(g.tasks), testing::SizeIs(2));
}

}  // namespace
}  // namespace megartp::test
