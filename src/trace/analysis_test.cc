#include "trace/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "trace/dependencies.h"
#include "trace/trace_test_support.h"

namespace megartp::trace {
namespace {

using ::testing::ElementsAre;

std::string link_text(const CriticalLink& l) {
  return fmt::format("{} {} {}..{}", l.task, to_string(l.kind), l.begin_ns, l.end_ns);
}
std::vector<std::string> path_of(const Trace& t) {
  std::vector<std::string> links;
  for (const CriticalLink& l : analyse(t).critical) links.push_back(link_text(l));
  return links;
}

TEST(CriticalPath, FollowsTheEventThatWasReachedLast) {
  EXPECT_THAT(path_of(testing::two_lanes()), ElementsAre("0 launch 0..10", "0 compute 10..100", "3 wait 100..110",
                                                         "3 compute 110..290", "3 launch 290..300"));
}

TEST(CriticalPath, FollowsTheQueueWhenTheLaneWasBusyLonger) {
  Trace t = testing::two_lanes();
  t.tasks[2].done_ns = 103;  // on task 3's lane, after its event
  t.tasks[3].visible_ns = 106;
  EXPECT_THAT(path_of(t), ElementsAre("2 launch 0..20", "2 compute 20..103", "3 queue 103..110", "3 compute 110..290",
                                      "3 launch 290..300"));
}

TEST(CriticalPath, CallsATileThatStreamsWeightsSo) {
  Trace t = testing::two_lanes();
  t.meta.read_gb_per_s = 4350;
  t.meta.gflops = 1979e3;
  t.tasks[3].weight_bytes = 100000;
  t.tasks[3].flops = 1000;
  t.tasks[0].weight_bytes = 100;
  t.tasks[0].flops = 1000000000;
  EXPECT_THAT(path_of(t), ElementsAre("0 launch 0..10", "0 compute 10..100", "3 wait 100..110", "3 weights 110..290",
                                      "3 launch 290..300"));
}

TEST(CriticalPath, SplitsATileByItsRoles) {
  Trace t = testing::two_lanes();
  t.roles = {{3, abi::kTraceRoleWeights, 60, 150}, {3, abi::kTraceRoleCompute, 140, 280}};
  EXPECT_THAT(path_of(t), ElementsAre("0 launch 0..10", "0 compute 10..100", "3 wait 100..110", "3 weights 110..140",
                                      "3 compute 140..290", "3 launch 290..300"));
}

TEST(CriticalPath, IsWithoutGapWhateverTheTraceHolds) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Trace t = testing::random_trace(seed, 1 + static_cast<uint32_t>(seed) % 60);
    if (seed % 4 == 1) {  // clocks that disagree, records that are lost: events that come before their signals
      for (size_t i = 0; i < t.tasks.size(); i += 3) {
        const uint64_t shift = std::min<uint64_t>(40, t.tasks[i].visible_ns);
        t.tasks[i].visible_ns -= shift;
        t.tasks[i].ready_ns -= shift;
        t.tasks[i].done_ns -= shift;
      }
      for (TraceEvent& e : t.events) e.waits[0].threshold += 1;
    }
    ASSERT_TRUE(check_trace(t)) << check_trace(t).error().to_string();
    const Analysis a = analyse(t);
    ASSERT_FALSE(a.critical.empty());
    uint64_t at = 0;
    for (const CriticalLink& l : a.critical) {
      EXPECT_EQ(l.begin_ns, at) << "seed " << seed;
      EXPECT_GT(l.end_ns, l.begin_ns);
      EXPECT_EQ(l.kind == LinkKind::kWait, l.event != kNoTraceEvent);
      at = l.end_ns;
    }
    EXPECT_EQ(at, t.meta.span_ns) << "seed " << seed;
    EXPECT_EQ(a.critical_ns(), t.meta.span_ns);
    EXPECT_EQ(std::accumulate(std::begin(a.link_ns), std::end(a.link_ns), uint64_t{0}), t.meta.span_ns);
    const uint64_t idle = std::accumulate(std::begin(a.idle_ns), std::end(a.idle_ns), uint64_t{0});
    EXPECT_EQ(a.busy_ns + idle, t.meta.span_ns * t.lanes.size()) << "seed " << seed;
  }
}

TEST(Slack, IsWhatATaskMayBeLate) {
  // Task 1 (C) ends at 200, the last task at 290. Task 2 (B) is needed by nobody but its lane: D may be ready at 110 at
  // the latest, and takes 10 from its needs on.
  EXPECT_THAT(analyse(testing::two_lanes()).slack_ns, ElementsAre(0, 90, 50, 0));
}

// The definition, by brute force: delay one tile and push everything behind it.
uint64_t end_with_delay(const Trace& t, const Dependencies& deps, uint32_t late_task, uint64_t delay) {
  std::vector<uint32_t> order(t.tasks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&t](uint32_t i) { return t.tasks[i].id; });  // random_trace: ids are in causal order
  std::vector<uint64_t> done(t.tasks.size());
  uint64_t end = 0;
  for (const uint32_t i : order) {
    uint64_t met = 0;
    if (const uint32_t before = deps.before_on_lane(i); before != kNoTraceTask) met = done[before];
    for (const TraceEvent& event : t.events)
      for (const EventWait& w : event.waits)
        if (w.task == i)
          for (const EventSignal& s : event.signals) met = std::max(met, done[s.task]);
    done[i] = met + deps.lag_ns(i) + (t.tasks[i].done_ns - t.tasks[i].ready_ns) + (i == late_task ? delay : 0);
    end = std::max(end, done[i]);
  }
  return end;
}

TEST(Slack, IsTheLargestDelayThatMovesNothing) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Trace t = testing::random_trace(seed, 25);
    const Dependencies deps(t);
    const std::vector<uint64_t> slack = slacks(t, deps);
    const uint64_t end = end_with_delay(t, deps, 0, 0);
    for (uint32_t i = 0; i < t.tasks.size(); ++i) {
      EXPECT_EQ(end_with_delay(t, deps, i, slack[i]), end) << "seed " << seed << " task " << i;
      EXPECT_EQ(end_with_delay(t, deps, i, slack[i] + 1), end + 1) << "seed " << seed << " task " << i;
    }
    for (const CriticalLink& l : critical_path(t, deps)) EXPECT_EQ(slack[l.task], 0U) << "seed " << seed;
  }
}

TEST(Idle, HasItsReasons) {
  const Analysis a = analyse(testing::two_lanes());
  const auto ns = [&a](IdleReason r) { return a.idle_ns[static_cast<size_t>(r)]; };
  EXPECT_EQ(a.busy_ns, 90U + 95 + 30 + 180);
  EXPECT_EQ(ns(IdleReason::kStart), 10U + 20);
  EXPECT_EQ(ns(IdleReason::kQueue), 5U + 5);
  EXPECT_EQ(ns(IdleReason::kProducer), 45U);  // 55 to 100
  EXPECT_EQ(ns(IdleReason::kLatency), 10U);
  EXPECT_EQ(ns(IdleReason::kEnd), 100U + 10);
  Trace t = testing::two_lanes();
  t.roles = {{3, abi::kTraceRoleWeights, 60, 80}, {3, abi::kTraceRoleWeights, 70, 90}};
  const Analysis with_prefetch = analyse(t);
  EXPECT_EQ(with_prefetch.idle_ns[static_cast<size_t>(IdleReason::kPrefetch)], 30U);
  EXPECT_EQ(with_prefetch.idle_ns[static_cast<size_t>(IdleReason::kProducer)], 15U);
}

TEST(OpTimes, SayWhatRanTogether) {
  const Analysis a = analyse(testing::two_lanes());
  ASSERT_EQ(a.ops.size(), 2U);
  EXPECT_EQ(a.ops[0].num_tasks, 2U);
  EXPECT_EQ(a.ops[0].busy_ns, 120U);
  EXPECT_EQ(a.ops[0].running_ns, 90U);  // 10 to 100
  EXPECT_EQ(a.ops[1].running_ns, 185U);
  EXPECT_EQ(a.ops[1].alone_ns, 185U);
  EXPECT_EQ(a.ops[0].critical_ns, 90U);
  EXPECT_TRUE(a.overlaps.empty());
  Trace t = testing::two_lanes();
  t.tasks[1].visible_ns = t.tasks[1].ready_ns = 100;
  t.tasks[2].done_ns = 130;
  t.tasks[3].visible_ns = t.tasks[3].ready_ns = 140;
  const Analysis b = analyse(t);
  ASSERT_EQ(b.overlaps.size(), 1U);
  EXPECT_EQ(b.overlaps[0].ns, 30U);
}

TEST(Analysis, HoldsForNoTasks) {
  Trace t = testing::two_lanes();
  t.tasks.clear();
  t.events.clear();
  const Analysis a = analyse(t);
  EXPECT_TRUE(a.critical.empty());
  EXPECT_EQ(a.idle_ns[static_cast<size_t>(IdleReason::kEnd)], 600U);
}

}  // namespace
}  // namespace megartp::trace
