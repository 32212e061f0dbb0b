#include "lowering/linearize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "lowering/hand_graph.h"

namespace megartp::lowering {
namespace {

using ::testing::ElementsAre;
using testing::HandGraph;
using ::testing::HasSubstr;
using testing::random_hand_graph;
using testing::task_range;

LinearOrder linearized(const HandGraph& g, const LinearizeOptions& options = {}) {
  auto order = linearize(g.tasks, options);
  EXPECT_TRUE(order) << (order ? "" : order.error().to_string());
  return std::move(*order);
}

TEST(Linearize, AForkReleasesTheTasksOfItsBranchesInterleaved) {
  HandGraph g;
  const uint32_t f = g.add_stage("F", 4);
  const uint32_t a = g.add_stage("A", 4);
  const uint32_t b = g.add_stage("B", 2);
  g.add_event({f, f + 1}, {a, a + 1, b});
  g.add_event({f + 2, f + 3}, {a + 2, a + 3, b + 1});
  const LinearOrder order = linearized(g);
  EXPECT_THAT(order.order, ElementsAre(f, f + 1, f + 2, f + 3, a, a + 1, b, a + 2, a + 3, b + 1));
  EXPECT_EQ(order.spans[0].first, 4U);
  EXPECT_EQ(order.spans[0].end, 7U);
  EXPECT_EQ(order.spans[1].first, 7U);
  EXPECT_EQ(order.spans[1].end, 10U);
  EXPECT_EQ(order.num_contiguous, 2U);
  for (uint32_t t = 0; t < 10; ++t) EXPECT_EQ(order.order[order.positions[t]], t);
}

TEST(Linearize, RootsStandWhereTheProgramHasThemOrFirst) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 2);
  const uint32_t c = g.add_stage("C", 2);
  const uint32_t b = g.add_stage("B", 2);  // nobody's consumer
  g.add_event({a}, {c});
  g.add_event({a + 1}, {c + 1});
  EXPECT_THAT(linearized(g).order, ElementsAre(a, a + 1, c, c + 1, b, b + 1));
  EXPECT_THAT(linearized(g, {.roots_first = true}).order, ElementsAre(a, a + 1, b, b + 1, c, c + 1));
}

TEST(Linearize, ATaskWithSeveralWaitsStandsWithTheEventThatCompletesLast) {
  // N: C waits for A, D waits for A and B, where B itself follows A.
  HandGraph g;
  const uint32_t a = g.add_stage("A", 1);
  const uint32_t b = g.add_stage("B", 1);
  const uint32_t c = g.add_stage("C", 2);
  const uint32_t d = g.add_stage("D", 2);
  const uint32_t early = g.add_event({a}, {b, c, c + 1, d, d + 1});
  const uint32_t late = g.add_event({b}, {d, d + 1});
  const LinearOrder order = linearized(g);
  EXPECT_THAT(order.order, ElementsAre(a, b, c, c + 1, d, d + 1));
  EXPECT_EQ(order.num_contiguous, 2U);
  EXPECT_EQ(order.spans[early].end - order.spans[early].first, 5U);
  EXPECT_EQ(order.spans[late].first, 4U);
}

TEST(Linearize, ScatteredConsumersAreReported) {
  // Both events complete together and share the middle consumer; X stands between as a root of its own.
  HandGraph g;
  const uint32_t p = g.add_stage("P", 3);
  const uint32_t c = g.add_stage("C", 4);
  const uint32_t wide = g.add_event({p, p + 1}, {c, c + 3});
  g.add_event({p + 2}, {c, c + 1, c + 2});
  g.add_event({p + 1}, {c + 2});
  const LinearOrder order = linearized(g);
  // c stands with the event of p + 2, which completes last; c + 3 waits for `wide` alone.
  EXPECT_THAT(order.order, ElementsAre(p, p + 1, p + 2, c, c + 1, c + 2, c + 3));
  EXPECT_EQ(order.spans[wide].num_ranges, 2U);
  EXPECT_FALSE(order.spans[wide].is_contiguous());
  EXPECT_EQ(order.num_contiguous, 2U);
}

TEST(Linearize, TasksOfAJoinGroupAllComeBeforeTheGroupsConsumers) {
  HandGraph g;
  const uint32_t slow = g.add_stage("slow", 1);
  const uint32_t last = g.add_stage("last", 1);
  const uint32_t late = g.add_stage("late", 1);
  const uint32_t group = g.add_stage("group", 2);
  for (const uint32_t t : {group, group + 1}) g.tasks.tasks[t].join_group = 0;
  g.tasks.join_counts = {2};
  g.add_event({slow}, {group + 1});
  g.add_event({group, group + 1}, {last});  // whichever arrives last sends it
  g.add_event({last}, {late});
  const LinearOrder order = linearized(g);
  EXPECT_THAT(order.order, ElementsAre(slow, group, group + 1, last, late));
}

TEST(Linearize, ACycleIsAnErrorThatNamesItsTasks) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 1);
  const uint32_t b = g.add_stage("B", 2);
  const uint32_t c = g.add_stage("C", 1);
  g.add_event({a}, {b});
  g.add_event({b}, {c});
  g.add_event({c}, {a});
  g.add_event({a}, {b + 1});  // downstream of the circle, not in it
  const auto order = linearize(g.tasks);
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().code, ErrorCode::kInternal);
  EXPECT_THAT(order.error().message, HasSubstr("task 0 ('A' tile 0) waits for event 2 of task 3 ('C' tile 0)"));
  EXPECT_THAT(order.error().message, HasSubstr("which waits for event 1 of task 1 ('B' tile 0)"));
  EXPECT_THAT(order.error().message, ::testing::Not(HasSubstr("tile 1")));
}

TEST(Linearize, AnEventThatNobodySignalsIsAnError) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 1);
  g.add_event({}, {a});
  const auto order = linearize(g.tasks);
  ASSERT_FALSE(order);
  EXPECT_THAT(order.error().message, HasSubstr("task 0 ('A' tile 0) waits for event 0, which no task signals"));
}

// A pass over pairs of tasks would need 10^11 steps.
TEST(Linearize, BarriersBetweenManyTasksTakeLinearTime) {
  constexpr uint32_t kWidth = 100000;
  HandGraph g;
  std::vector<uint32_t> previous;
  for (int s = 0; s < 10; ++s) {
    const auto tasks = task_range(g.add_stage("S" + std::to_string(s), kWidth), kWidth);
    if (s > 0) g.add_event(previous, tasks);
    previous = tasks;
  }
  const LinearOrder order = linearized(g);
  EXPECT_EQ(order.order, task_range(0, 10 * kWidth));
  EXPECT_EQ(order.num_contiguous, 9U);
}

// --- random graphs
// ---------------------------------------------------------------------------------------------------------

std::vector<std::vector<uint32_t>> consumers_of(const TaskGraph& g) {
  std::vector<std::vector<uint32_t>> consumers(g.events.size());
  for (uint32_t t = 0; t < g.tasks.size(); ++t)
    for (uint32_t i = 0; i < g.tasks[t].num_waits; ++i) consumers[g.tasks[t].waits[i].event].push_back(t);
  return consumers;
}

// A permutation, in order of dependencies, whose spans are what a look at every consumer finds.
void check_order(const TaskGraph& g, const LinearOrder& order) {
  auto sorted = order.order;
  std::ranges::sort(sorted);
  RC_ASSERT(sorted == task_range(0, static_cast<uint32_t>(g.tasks.size())));
  for (uint32_t at = 0; at < order.order.size(); ++at) RC_ASSERT(order.positions[order.order[at]] == at);
  const auto consumers = consumers_of(g);
  for (uint32_t t = 0; t < g.tasks.size(); ++t)
    for (uint32_t i = 0; i < g.tasks[t].num_signals; ++i)
      for (const uint32_t c : consumers[g.tasks[t].signals[i].event])
        RC_ASSERT(order.positions[t] < order.positions[c]);
  uint32_t num_contiguous = 0;
  for (uint32_t e = 0; e < g.events.size(); ++e) {
    std::vector<uint32_t> at;
    for (const uint32_t c : consumers[e]) at.push_back(order.positions[c]);
    std::ranges::sort(at);
    RC_ASSERT(order.spans[e].first == at.front());
    RC_ASSERT(order.spans[e].end == at.back() + 1);
    uint32_t runs = 1;
    for (size_t i = 1; i < at.size(); ++i) runs += at[i] == at[i - 1] + 1 ? 0 : 1;
    RC_ASSERT(order.spans[e].num_ranges == runs);
    num_contiguous += runs == 1 ? 1 : 0;
  }
  RC_ASSERT(order.num_contiguous == num_contiguous);
}

RC_GTEST_PROP(LinearizeProperty, WithOneWaitATaskEveryEventIsContiguous, ()) {
  const HandGraph g = random_hand_graph({.max_waits = 1, .max_signals = *rc::gen::inRange<uint32_t>(1, 5)});
  for (const bool roots_first : {false, true}) {
    const auto order = linearize(g.tasks, {.roots_first = roots_first});
    RC_ASSERT(order.has_value());
    check_order(g.tasks, *order);
    RC_ASSERT(order->num_contiguous == g.tasks.events.size());
    RC_ASSERT(order->order == linearize(g.tasks, {.roots_first = roots_first})->order);
  }
}

RC_GTEST_PROP(LinearizeProperty, BlocksFollowProgramOrder, ()) {
  const HandGraph g = random_hand_graph({.max_waits = 1, .max_signals = 4, .ids_follow_dependencies = true});
  const auto order = linearize(g.tasks);
  RC_ASSERT(order.has_value());
  // One block a root, one an event: each is ascending, and so are their first tasks.
  uint32_t first_of_block = 0;
  for (uint32_t at = 1; at < order->order.size(); ++at) {
    const Task& task = g.tasks.tasks[order->order[at]];
    const Task& before = g.tasks.tasks[order->order[at - 1]];
    const bool same_block =
        task.num_waits == 1 && before.num_waits == 1 && task.waits[0].event == before.waits[0].event;
    if (same_block) {
      RC_ASSERT(order->order[at - 1] < order->order[at]);
    } else {
      RC_ASSERT(order->order[first_of_block] < order->order[at]);
      first_of_block = at;
    }
  }
}

// Breadth-first position of the last signaller of each event.
std::vector<size_t> completion_times(const TaskGraph& g) {
  const auto consumers = consumers_of(g);
  std::vector<size_t> signals(g.events.size(), 0);
  std::vector<size_t> waits;
  std::vector<uint32_t> queue;
  for (uint32_t t = 0; t < g.tasks.size(); ++t) {
    for (uint32_t i = 0; i < g.tasks[t].num_signals; ++i) ++signals[g.tasks[t].signals[i].event];
    waits.push_back(g.tasks[t].num_waits);
    if (waits.back() == 0) queue.push_back(t);
  }
  std::vector<size_t> times(g.events.size(), 0);
  for (size_t at = 0; at < queue.size(); ++at)
    for (uint32_t i = 0; i < g.tasks[queue[at]].num_signals; ++i) {
      const uint32_t e = g.tasks[queue[at]].signals[i].event;
      if (--signals[e] != 0) continue;
      times[e] = at;
      for (const uint32_t c : consumers[e])
        if (--waits[c] == 0) queue.push_back(c);
    }
  return times;
}

RC_GTEST_PROP(LinearizeProperty, WithSeveralWaitsTheLastEventOfAllItsConsumersIsContiguous, ()) {
  const HandGraph g = random_hand_graph({.max_waits = 4, .max_signals = 4});
  const auto order = linearize(g.tasks);
  RC_ASSERT(order.has_value());
  check_order(g.tasks, *order);
  const auto times = completion_times(g.tasks);
  const auto consumers = consumers_of(g.tasks);
  for (uint32_t e = 0; e < g.tasks.events.size(); ++e) {
    const bool is_last_of_all = std::ranges::all_of(consumers[e], [&](uint32_t c) {
      const Task& task = g.tasks.tasks[c];
      return std::all_of(task.waits.begin(), task.waits.begin() + task.num_waits,
                         [&](const abi::Wait& w) { return w.event == e || times[w.event] < times[e]; });
    });
    if (is_last_of_all) RC_ASSERT(order->spans[e].is_contiguous());
  }
}

RC_GTEST_PROP(LinearizeProperty, AnEdgeBackwardsIsFoundToBeACycle, ()) {
  HandGraph g = random_hand_graph({.max_waits = 3, .max_signals = 3});
  // Some consumer of an event now signals an event that one of the first event's signallers waits for.
  if (g.tasks.events.empty()) return;
  RC_TAG("with events");
  const auto event = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(g.tasks.events.size()));
  uint32_t producer = kInvalidId;
  uint32_t consumer = kInvalidId;
  for (uint32_t t = 0; t < g.tasks.tasks.size(); ++t) {
    for (uint32_t i = 0; i < g.tasks.tasks[t].num_signals; ++i)
      if (g.tasks.tasks[t].signals[i].event == event) producer = t;
    for (uint32_t i = 0; i < g.tasks.tasks[t].num_waits; ++i)
      if (g.tasks.tasks[t].waits[i].event == event) consumer = t;
  }
  g.add_event({consumer}, {producer});
  const auto order = linearize(g.tasks);
  RC_ASSERT(!order.has_value());
  RC_ASSERT(order.error().message.find("in a circle") != std::string::npos);
}

}  // namespace
}  // namespace megartp::lowering
