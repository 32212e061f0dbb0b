#include <algorithm>
#include <cmath>
#include <queue>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "lowering/box_stage.h"
#include "plan/packing.h"
#include "plan/plan_limits.h"
#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using lowering::testing::BoxGraph;
using lowering::testing::BoxTile;
using ::testing::HasSubstr;

TEST(Target, PresetsAreFoundByName) {
  for (const TargetDesc& t : target_presets()) {
    ASSERT_TRUE(find_target(t.name));
    EXPECT_EQ(find_target(t.name)->num_workers, t.num_workers);
    EXPECT_GT(t.num_workers, 0U);
  }
  EXPECT_EQ(find_target("h200")->num_workers, 132U);
  EXPECT_EQ(find_target("b300")->num_workers, 148U);
  EXPECT_EQ(find_target("b300")->arch, "sm_103a");
  const auto unknown = find_target("tpu");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("'tpu'"));
  EXPECT_THAT(unknown.error().message, HasSubstr("cpu, h200, h100, b300"));
}

TEST(Packer, NamesRoundTrip) {
  for (const Packer p : kPackers) EXPECT_EQ(*parse_packer(to_string(p)), p);
  EXPECT_FALSE(parse_packer("best"));
}

TEST(Pack, RoundRobinDealsTasksInOrderAndPadsWithNoOps) {
  // 732 tasks over 148 workers: 140 have five instructions, 8 have four and a NoOp.
  const KernelPlan plan = testing::packed_chain(61, 12, 148);
  ASSERT_EQ(plan.num_tasks, 732U);
  EXPECT_EQ(plan.num_workers, 148U);
  EXPECT_EQ(plan.queue_depth, 5U);
  EXPECT_EQ(plan.instructions.size(), 740U);
  uint32_t noops = 0;
  for (uint32_t w = 0; w < 148; ++w)
    for (uint32_t slot = 0; slot < 5; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp) {
        ++noops;
        EXPECT_GE(w, 140U);
        EXPECT_EQ(slot, 4U);
      } else {
        EXPECT_EQ(i.task_id, slot * 148 + w);
      }
    }
  EXPECT_EQ(noops, 8U);
  EXPECT_TRUE(check_plan(plan)) << check_plan(plan).error().to_string();
}

TEST(Pack, InstructionsCarryTheTask) {
  const TaskGraph tasks = testing::lowered_chain(3, 4);
  const auto plan = pack(tasks, *find_target("h200"), {Packer::kRoundRobin, 5});
  ASSERT_TRUE(plan);
  const abi::Instruction& i = plan->instruction(1, 1);  // task 6: row 2 of add1
  EXPECT_EQ(i.task_id, 6U);
  EXPECT_EQ(i.operand_row, 1U);
  EXPECT_EQ(i.opcode, tasks.stages[1].stage->opcode);
  EXPECT_EQ(i.spec_id, 0U) << "equal specs are stored once";
  EXPECT_EQ(plan->specs.size(), 1U);
  EXPECT_EQ(abi::num_payload(i), 1U);
  EXPECT_EQ(i.payload[0], 2U);
  ASSERT_EQ(abi::num_waits(i), 1U);
  EXPECT_EQ(i.waits[0].event, tasks.tasks[6].waits[0].event);
  EXPECT_EQ(i.waits[0].threshold, 1U);
  ASSERT_EQ(abi::num_signals(i), 1U);
  EXPECT_EQ(abi::increment(i.signals[0]), 1U);
  EXPECT_EQ(i.join_counter, abi::kNoJoin);
  EXPECT_EQ(plan->target, "h200");
  EXPECT_EQ(plan->packer, "round-robin");
}

TEST(Pack, ActivationsShareNoMemory) {
  const KernelPlan plan = testing::packed_chain(5, 3, 2);
  uint64_t end = 0;
  int activations = 0;
  for (const PlanTensor& t : plan.tensors) {
    if (t.storage != Storage::kActivation) {
      EXPECT_EQ(t.arena_offset, kExternal);
      continue;
    }
    ++activations;
    EXPECT_EQ(t.arena_offset % 256, 0U);
    EXPECT_GE(t.arena_offset, end);
    end = t.arena_offset + t.num_bytes;
    EXPECT_EQ(t.num_bytes, 3U * 64 * 2);
  }
  EXPECT_EQ(activations, 4);
  EXPECT_GE(plan.workspace_bytes, end);
}

TEST(Pack, RefusesWhatItCannotHold) {
  const TaskGraph tasks = testing::lowered_chain(1, 4);
  EXPECT_FALSE(pack(tasks, *find_target("cpu"), {Packer::kRoundRobin, kMaxWorkers + 1}));
  EXPECT_FALSE(pack(TaskGraph{}, *find_target("cpu"), {}));
}

TEST(CriticalPath, StartsTheLongChainFirst) {
  // Two independent stages: many cheap tiles, and one tile that a chain of three follows. The chain's head has the
  // higher id and must still come first.
  BoxGraph g;
  const TensorId a = g.add_tensor({32, 8});
  const TensorId c = g.add_tensor({4, 8});
  const auto row = [](TensorId t, int64_t r) { return Access{t, Box::of({{r, r + 1}, {0, 8}})}; };
  std::vector<BoxTile> cheap;
  for (int64_t i = 0; i < 32; ++i) cheap.push_back({{}, {row(a, i)}});
  g.add_stage(cheap);
  g.add_stage({{{}, {row(c, 0)}}});
  for (int64_t i = 1; i < 4; ++i) g.add_stage({{{row(c, i - 1)}, {row(c, i)}}});
  ASSERT_TRUE(g.derive());
  const auto schedule = plan::schedule_critical_path(g.tasks, *find_target("h200"), 4);
  ASSERT_TRUE(schedule);
  EXPECT_EQ(schedule->tasks[0], 32U);
  const auto round_robin = plan::schedule_round_robin(g.tasks, 4);
  EXPECT_EQ(round_robin.tasks[0], 0U);
}

Access row(TensorId t, int64_t i, int64_t columns = 8) { return {t, Box::of({{i, i + 1}, {0, columns}})}; }
// The tasks of `long_ones` read much, all others nothing.
void set_bytes(TaskGraph& tasks, std::initializer_list<uint32_t> long_ones) {
  for (Task& t : tasks.tasks) t.bytes = 0;
  for (const uint32_t t : long_ones) tasks.tasks[t].bytes = 1e9F;
}

// Two ready tasks on one worker: a long one with nothing behind it, a short one with a chain behind it on others. The
// long one has the longer path of the two.
TEST(LongestTail, ShortTaskWithALongTailGoesFirst) {
  BoxGraph g;
  const TensorId big = g.add_tensor({1, 1 << 20});
  const TensorId c = g.add_tensor({4, 8});
  g.add_stage({{{}, {row(big, 0, 1 << 20)}}});
  g.add_stage({{{}, {row(c, 0, 8)}}});
  for (int64_t i = 1; i < 4; ++i) g.add_stage({{{row(c, i - 1, 8)}, {row(c, i, 8)}}});
  ASSERT_TRUE(g.derive());
  const TargetDesc target = *find_target("h200");
  set_bytes(g.tasks, {0});
  const auto by_path = plan::schedule_critical_path(g.tasks, target, 1);
  const auto by_tail = plan::schedule_longest_tail(g.tasks, target, 1);
  ASSERT_TRUE(by_path);
  ASSERT_TRUE(by_tail);
  EXPECT_EQ(by_path->tasks[0], 0U);
  EXPECT_EQ(by_tail->tasks[0], 1U);
}

// One long task, then eight short ones that wait for it. Workers that had nothing to do meanwhile begin then, too.
TEST(CriticalPath, AnIdleWorkerDoesNotTakeTasksOfTheFuture) {
  BoxGraph g;
  const TensorId a = g.add_tensor({1, 8});
  const TensorId b = g.add_tensor({8, 8});
  const Access all = row(a, 0);
  g.add_stage({{{}, {all}}});
  std::vector<BoxTile> tiles(8);
  for (int64_t i = 0; i < 8; ++i) tiles[static_cast<size_t>(i)] = {{all}, {row(b, i)}};
  g.add_stage(std::move(tiles));
  ASSERT_TRUE(g.derive());
  const TargetDesc target = *find_target("h200");
  set_bytes(g.tasks, {0});
  const auto by_path = plan::schedule_critical_path(g.tasks, target, 4);
  const auto by_insertion = plan::schedule_insertion(g.tasks, target, 4);
  ASSERT_TRUE(by_path);
  ASSERT_TRUE(by_insertion);
  for (const plan::Schedule& s : {*by_path, *by_insertion})
    for (uint32_t w = 0; w < 4; ++w)
      EXPECT_EQ(s.offsets[w + 1] - s.offsets[w] - (s.tasks[s.offsets[w]] == 0 ? 1U : 0U), 2U) << "worker " << w;
}

// Two workers; a short task, then another with a long task behind it; two long tasks with nothing behind them. Lists
// give both workers a long one while the second short one is not ready yet.
TEST(Insertion, AWorkerWaitsForAShortTaskWithMuchBehindIt) {
  BoxGraph g;
  const TensorId big = g.add_tensor({2, 8});
  const TensorId c = g.add_tensor({3, 8});
  g.add_stage({{{}, {row(big, 0)}}, {{}, {row(big, 1)}}});
  g.add_stage({{{}, {row(c, 0)}}});
  g.add_stage({{{row(c, 0)}, {row(c, 1)}}});
  g.add_stage({{{row(c, 1)}, {row(c, 2)}}});
  ASSERT_TRUE(g.derive());
  const TargetDesc target = *find_target("h200");
  set_bytes(g.tasks, {0, 1, 4});
  const auto by_tail = plan::schedule_longest_tail(g.tasks, target, 2);
  const auto by_insertion = plan::schedule_insertion(g.tasks, target, 2);
  ASSERT_TRUE(by_tail);
  ASSERT_TRUE(by_insertion);
  const auto queue = [](const plan::Schedule& s, uint32_t w) {
    return std::vector<uint32_t>(s.tasks.begin() + s.offsets[w], s.tasks.begin() + s.offsets[w + 1]);
  };
  EXPECT_EQ(queue(*by_tail, 0), (std::vector<uint32_t>{2, 1, 4}));
  EXPECT_EQ(queue(*by_tail, 1), (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(queue(*by_insertion, 0), (std::vector<uint32_t>{2, 3, 1}));
  EXPECT_EQ(queue(*by_insertion, 1), (std::vector<uint32_t>{0, 4}));
}

// A task that fits between two others of a worker is put there; afterwards the gap is smaller by it.
TEST(Insertion, GapsAreFilledOnce) {
  BoxGraph g;
  const TensorId c = g.add_tensor({3, 8});
  const TensorId d = g.add_tensor({3, 8});
  g.add_stage({{{}, {row(c, 0)}}});
  g.add_stage({{{row(c, 0)}, {row(c, 1)}}});
  g.add_stage({{{}, {row(d, 0)}}, {{}, {row(d, 1)}}, {{}, {row(d, 2)}}});
  ASSERT_TRUE(g.derive());
  TargetDesc target = *find_target("h200");
  target.task_overhead_us = 1;
  target.event_latency_us = 2;
  set_bytes(g.tasks, {});
  const auto s = plan::schedule_insertion(g.tasks, target, 1);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->tasks, (std::vector<uint32_t>{0, 2, 3, 1, 4}));
}

TEST(CriticalPath, ReportsEventsThatNeverFire) {
  BoxGraph g;
  const TensorId c = g.add_tensor({4, 8});
  g.add_stage({{{}, {{c, Box::of({{0, 1}, {0, 8}})}}}});
  g.add_stage({{{{c, Box::of({{0, 1}, {0, 8}})}}, {{c, Box::of({{1, 2}, {0, 8}})}}}});
  ASSERT_TRUE(g.derive());
  g.tasks.tasks[0].num_signals = 0;
  for (const auto& schedule : {plan::schedule_critical_path(g.tasks, *find_target("cpu"), 2),
                               plan::schedule_insertion(g.tasks, *find_target("cpu"), 2)}) {
    ASSERT_FALSE(schedule);
    EXPECT_EQ(schedule.error().code, ErrorCode::kInternal);
  }
}

TEST(CriticalPath, CostGrowsWithBytesAndWorkers) {
  Task task;
  task.bytes = 4.35e6F;
  TargetDesc t = *find_target("h200");
  EXPECT_NEAR(plan::task_work_us(task, t, 1), 1.0, 1e-6);
  EXPECT_NEAR(plan::task_work_us(task, t, 132), 132.0, 1e-4);
  t.hidden_loads = 0.25;
  EXPECT_NEAR(plan::task_work_us(task, t, 132), 99.0, 1e-4);
}

// Walks the queues the way workers do; true when every task gets its turn.
bool runs_to_the_end(const TaskGraph& g, const plan::Schedule& s) {
  std::vector<uint64_t> counters(g.events.size(), 0);
  std::vector<uint32_t> arrivals(g.join_counts.size(), 0);
  std::vector<uint32_t> at(s.offsets.begin(), s.offsets.end() - 1);
  size_t done = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t w = 0; w < at.size(); ++w) {
      while (at[w] < s.offsets[w + 1]) {
        const Task& task = g.tasks[s.tasks[at[w]]];
        bool can_run = true;
        for (uint32_t i = 0; i < task.num_waits; ++i)
          can_run = can_run && counters[task.waits[i].event] >= task.waits[i].threshold;
        if (!can_run) break;
        if (task.join_group == abi::kNoJoin || ++arrivals[task.join_group] == g.join_counts[task.join_group])
          for (uint32_t i = 0; i < task.num_signals; ++i)
            counters[task.signals[i].event] += abi::increment(task.signals[i]);
        ++at[w];
        ++done;
        progress = true;
      }
    }
  }
  return done == g.tasks.size();
}

// A worker with more gaps than it remembers.
TEST(Insertion, ManyGaps) {
  constexpr int64_t kChain = 40;
  constexpr int64_t kOthers = 60;
  BoxGraph g;
  const TensorId c = g.add_tensor({kChain, 8});
  const TensorId d = g.add_tensor({kOthers, 8});
  g.add_stage({{{}, {row(c, 0)}}});
  for (int64_t i = 1; i < kChain; ++i) g.add_stage({{{row(c, i - 1)}, {row(c, i)}}});
  std::vector<BoxTile> others(kOthers);
  for (int64_t i = 0; i < kOthers; ++i) others[static_cast<size_t>(i)] = {{}, {row(d, i)}};
  g.add_stage(std::move(others));
  ASSERT_TRUE(g.derive());
  TargetDesc target = *find_target("h200");
  target.task_overhead_us = 1;
  target.event_latency_us = 1;
  set_bytes(g.tasks, {});
  const auto s = plan::schedule_insertion(g.tasks, target, 1);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->tasks.size(), static_cast<size_t>(kChain + kOthers));
  EXPECT_TRUE(runs_to_the_end(g.tasks, *s));
  // The first 23 of the 39 gaps are forgotten, the others hold a task each.
  for (uint32_t i = 0; i < 24; ++i) EXPECT_EQ(s->tasks[i], i);
  for (uint32_t i = 24; i < kChain; ++i) {
    EXPECT_GE(s->tasks[2 * i - 24], uint32_t{kChain});
    EXPECT_EQ(s->tasks[2 * i - 23], i);
  }
}

RC_GTEST_PROP(Schedules, ArePermutationsThatRunToTheEnd, ()) {
  BoxGraph g;
  std::vector<TensorId> tensors;
  for (int i = 0; i < 3; ++i) tensors.push_back(g.add_tensor({8, 4}));
  for (int s = *rc::gen::inRange(1, 6); s > 0; --s) {
    const auto n = *rc::gen::inRange<size_t>(1, 9);
    std::vector<BoxTile> tiles(n);
    const TensorId out = tensors[*rc::gen::inRange<size_t>(0, 3)];
    for (size_t t = 0; t < n; ++t) {
      if (t < 8) tiles[t].writes.push_back({out, Box::of({{int64_t(t), int64_t(t) + 1}, {0, 4}})});
      const TensorId in = tensors[*rc::gen::inRange<size_t>(0, 3)];
      const auto begin = *rc::gen::inRange<int64_t>(0, 8);
      tiles[t].reads.push_back({in, Box::of({{begin, *rc::gen::inRange<int64_t>(begin + 1, 9)}, {0, 4}})});
    }
    std::vector<BoxTile> finals;
    if (*rc::gen::arbitrary<bool>()) {
      for (BoxTile& t : tiles) t.join_group = 0;
      finals.push_back(std::move(tiles[0]));
      tiles[0] = BoxTile{{}, {}, 0};
      for (BoxTile& t : tiles) t.writes.clear();
    }
    g.add_stage(std::move(tiles), std::move(finals));
  }
  RC_ASSERT(g.derive().has_value());
  const auto workers = *rc::gen::inRange<uint32_t>(1, 12);
  TargetDesc target = *find_target(*rc::gen::element<std::string>("cpu", "h200"));
  // Nothing takes any time: all starts are equal, and only ties keep an order.
  if (*rc::gen::arbitrary<bool>())
    target.task_overhead_us = target.event_latency_us = target.read_gb_per_s = target.gflops = 0;
  const auto list = plan::schedule_critical_path(g.tasks, target, workers);
  const auto tail = plan::schedule_longest_tail(g.tasks, target, workers);
  const auto insertion = plan::schedule_insertion(g.tasks, target, workers);
  RC_ASSERT(list.has_value());
  RC_ASSERT(tail.has_value());
  RC_ASSERT(insertion.has_value());
  for (const plan::Schedule& s : {*list, *tail, *insertion, plan::schedule_round_robin(g.tasks, workers)}) {
    RC_ASSERT(s.offsets.size() == workers + 1U);
    std::vector<uint32_t> sorted = s.tasks;
    std::ranges::sort(sorted);
    RC_ASSERT(sorted.size() == g.tasks.tasks.size());
    for (uint32_t i = 0; i < sorted.size(); ++i) RC_ASSERT(sorted[i] == i);
    RC_ASSERT(runs_to_the_end(g.tasks, s));
  }
  const auto again = plan::schedule_critical_path(g.tasks, target, workers);
  RC_ASSERT(again->tasks == list->tasks);
  RC_ASSERT(again->offsets == list->offsets);
}

}  // namespace
}  // namespace megartp
