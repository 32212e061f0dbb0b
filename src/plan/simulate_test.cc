#include "plan/simulate.h"

#include <gtest/gtest.h>

#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using testing::lowered_chain;

// `queues` of tasks; task t takes fixed[t] ns. deps: (from, to), an event each.
SimProgram fixed_program(const std::vector<double>& fixed, const std::vector<std::vector<uint32_t>>& queues,
                         const std::vector<std::pair<uint32_t, uint32_t>>& deps) {
  SimProgram p;
  for (const double ns : fixed) p.tasks.push_back({.cost = {}, .fixed_ns = ns});
  p.num_events = static_cast<uint32_t>(deps.size());
  for (uint32_t t = 0; t < p.tasks.size(); ++t) {
    p.tasks[t].first_wait = static_cast<uint32_t>(p.waits.size());
    p.tasks[t].first_signal = static_cast<uint32_t>(p.signals.size());
    for (uint32_t e = 0; e < deps.size(); ++e) {
      if (deps[e].second == t) p.waits.push_back({e, 1});
      if (deps[e].first == t) p.signals.push_back(abi::make_signal(e, 1, 0));
    }
    p.tasks[t].num_waits = static_cast<uint32_t>(p.waits.size()) - p.tasks[t].first_wait;
    p.tasks[t].num_signals = static_cast<uint32_t>(p.signals.size()) - p.tasks[t].first_signal;
  }
  p.queue_offsets = {0};
  for (const auto& queue : queues) {
    p.queue.insert(p.queue.end(), queue.begin(), queue.end());
    p.queue_offsets.push_back(static_cast<uint32_t>(p.queue.size()));
  }
  return p;
}

// One task a worker, no waits, with these costs.
SimProgram reading_program(const std::vector<TaskCost>& costs) {
  SimProgram p;
  p.queue_offsets = {0};
  for (uint32_t t = 0; t < costs.size(); ++t) {
    p.tasks.push_back({.cost = costs[t]});
    p.queue.push_back(t);
    p.queue_offsets.push_back(t + 1);
  }
  return p;
}

TEST(Simulate, AddsUpAChainAcrossWorkers) {
  const SimProgram p = fixed_program({100, 200, 50}, {{0, 2}, {1}}, {{0, 1}, {1, 2}});
  SimCosts costs;
  costs.event_ns = 10;
  costs.launch_ns = 7;
  const auto result = simulate(p, costs);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->span_ns, 7U + 100 + 10 + 200 + 10 + 50);
  EXPECT_EQ(result->tasks[2].visible_ns, 107U);
  EXPECT_EQ(result->tasks[2].ready_ns, 327U);
}

TEST(Simulate, ReadersShareTheChipAndNoWorkerTakesMoreThanItCan) {
  SimCosts costs;
  costs.chip_bytes_per_ns = 10;
  costs.worker_bytes_per_ns = 8;
  // Alone: 8 a nanosecond. Two: 5 each until the short one has its 500, then 8 for the other's last 500.
  EXPECT_EQ(simulate(reading_program({{800, 0, 0}}), costs)->span_ns, 100U);
  const auto two = simulate(reading_program({{500, 0, 0}, {1000, 0, 0}}), costs);
  EXPECT_EQ(two->tasks[0].done_ns, 100U);
  EXPECT_EQ(two->tasks[1].done_ns, 163U);  // 100 + 500 / 8
}

TEST(Simulate, ComputeAndReadsOverlap) {
  SimCosts costs;
  costs.chip_bytes_per_ns = 10;
  costs.worker_flops_per_ns = 2;
  costs.task_ns = 5;
  EXPECT_EQ(simulate(reading_program({{1000, 0, 100}}), costs)->span_ns, 105U);
  EXPECT_EQ(simulate(reading_program({{1000, 0, 400}}), costs)->span_ns, 205U);
}

TEST(Simulate, WeightsAreReadWhileATaskWaits) {
  SimProgram p = fixed_program({100, -1}, {{0}, {1}}, {{0, 1}});
  p.tasks[1].cost = {900, 100, 0};
  SimCosts costs;
  costs.chip_bytes_per_ns = 10;
  EXPECT_EQ(simulate(p, costs)->span_ns, 200U);
  costs.prefetch_bytes = 4096;
  const auto result = simulate(p, costs);
  EXPECT_EQ(result->span_ns, 110U);  // only the 100 other bytes are left
  ASSERT_EQ(result->parts.size(), 2U);
  EXPECT_EQ(result->parts[0].end_ns, 90U);
  EXPECT_EQ(result->parts[1].begin_ns, 100U);
  costs.prefetch_bytes = 400;
  EXPECT_EQ(simulate(p, costs)->span_ns, 160U);
}

TEST(Simulate, TheLastOfAJoinGroupSignals) {
  SimProgram p = fixed_program({100, 300, 10}, {{0}, {1}, {2}}, {{0, 2}});
  p.tasks[1].first_signal = p.tasks[0].first_signal;
  p.tasks[1].num_signals = p.tasks[0].num_signals;
  p.tasks[0].join_group = p.tasks[1].join_group = 0;
  p.join_counts = {2};
  const auto result = simulate(p, {});
  EXPECT_EQ(result->span_ns, 310U);
  EXPECT_FALSE(result->tasks[0].sent);
  EXPECT_TRUE(result->tasks[1].sent);
}

TEST(Simulate, NamesADeadlock) {
  const auto result = simulate(fixed_program({10, 10}, {{1, 0}}, {{0, 1}}), {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlock);
  const auto twice = simulate(fixed_program({10}, {{0, 0}}, {}), {});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kInvalidArgument);
}

// No plan is faster than its bytes over the chip's rate, nor than its longest chain of tasks.
TEST(Simulate, StaysBetweenItsBounds) {
  const TaskGraph graph = lowered_chain(6, 64);
  const std::vector<TaskCost> costs = task_costs(graph);
  double bytes = 0;
  for (size_t t = 0; t < costs.size(); ++t) {
    EXPECT_EQ(static_cast<float>(costs[t].weight_bytes + costs[t].other_bytes), graph.tasks[t].bytes);
    bytes += static_cast<double>(costs[t].weight_bytes + costs[t].other_bytes);
  }
  for (const char* name : {"cpu", "h200", "b300"}) {
    const TargetDesc target = *find_target(name);
    for (const Packer packer : kPackers) {
      const auto plan = pack(graph, target, {packer, 4});
      ASSERT_TRUE(plan);
      const auto result = simulate(make_sim_program(*plan, costs), sim_costs(target, 4));
      ASSERT_TRUE(result) << result.error().to_string();
      EXPECT_GE(static_cast<double>(result->span_ns), bytes / target.read_gb_per_s);
      EXPECT_GE(static_cast<double>(result->span_ns), 1e3 * (target.launch_us + 6 * target.task_overhead_us) - 6);
      for (const SimTimes& t : result->tasks) EXPECT_TRUE(t.visible_ns <= t.ready_ns && t.ready_ns <= t.done_ns);
    }
  }
}

}  // namespace
}  // namespace megartp
