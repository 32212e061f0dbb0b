// The exploring mode: sound plans give one outcome; each kind of mistake shows as another outcome or a deadlock; and
// the reduction judges as all orders do.
#include "backends/cpu_threads/explore.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "lowering/lower.h"
#include "plan/target.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRowColumns = 8;

// y = x + b, z = y + x, y2 = y + b, y3 = y2 + b, out = y3 + b: y has two readers that nothing orders.
OpGraph diamond() {
  OpGraph g("diamond");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", kRowColumns});
  const Tensor b = g.runtime_arg("b", DType::kBF16, {"M", kRowColumns});
  const Tensor y = g.add(x, b, "y");
  const Tensor z = g.add(y, x, "z");
  const Tensor y2 = g.add(y, b, "y2");
  const Tensor y3 = g.add(y2, b, "y3");
  g.set_outputs({z, g.add(y3, b, "out")});
  return g;
}

// first = x + b, second = first + b.
OpGraph short_chain() {
  OpGraph g("chain");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", kRowColumns});
  const Tensor b = g.runtime_arg("b", DType::kBF16, {"M", kRowColumns});
  g.set_outputs({g.add(g.add(x, b, "first"), b, "second")});
  return g;
}

KernelPlan plan_of(const OpGraph& graph, int64_t m, uint32_t workers, EventMode mode = EventMode::kExact) {
  ShapeEnv shapes;
  shapes.set("M", m);
  LowerOptions options;
  options.events.mode = mode;
  return pack(lower(graph, shapes, options).value(), find_target("cpu").value(), {Packer::kRoundRobin, workers})
      .value();
}

struct Outcome {
  ExploreReport report;
  std::vector<std::vector<bf16>> outputs;
};

Outcome explore(const KernelPlan& plan, const ExploreOptions& options = {}) {
  Outcome outcome;
  auto e = prepare_explorer(std::make_shared<const KernelPlan>(plan), options);
  EXPECT_TRUE(e) << e.error().to_string();
  if (!e) return outcome;
  std::vector<std::vector<bf16>> memory;
  memory.reserve(plan.tensors.size());
  for (const PlanTensor& t : plan.tensors) {
    if (t.arena_offset != kExternal) continue;
    auto& values = memory.emplace_back(t.num_bytes / 2);
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(static_cast<float>(i % 5 + memory.size()));
    EXPECT_TRUE((*e)->bind(t.name, values.data(), t.num_bytes));
    if (t.storage == Storage::kOutput) outcome.outputs.emplace_back();
  }
  (*e)->poison();
  const auto stats = (*e)->run();
  EXPECT_TRUE(stats) << stats.error().to_string();
  outcome.report = (*e)->report();
  size_t n = 0, o = 0;
  for (const PlanTensor& t : plan.tensors) {
    if (t.arena_offset != kExternal) continue;
    if (t.storage == Storage::kOutput) outcome.outputs[o++] = memory[n];
    ++n;
  }
  return outcome;
}

abi::Instruction& task(KernelPlan& plan, uint32_t id) {
  return *std::ranges::find_if(
      plan.instructions, [id](const abi::Instruction& i) { return i.opcode != abi::kOpcodeNoOp && i.task_id == id; });
}
void drop_waits(abi::Instruction& i) {
  i.counts = abi::make_counts(0, abi::num_signals(i), abi::num_payload(i));
  std::fill(std::begin(i.waits), std::end(i.waits), abi::Wait{});
}
void drop_signals(abi::Instruction& i) {
  i.counts = abi::make_counts(abi::num_waits(i), 0, abi::num_payload(i));
  std::fill(std::begin(i.signals), std::end(i.signals), abi::Signal{});
}

TEST(Explore, ASoundPlanHasOneOutcome) {
  for (const EventMode mode : {EventMode::kExact, EventMode::kWhole}) {
    for (const uint32_t workers : {1U, 2U, 3U}) {
      const Outcome o = explore(plan_of(diamond(), 3, workers, mode));
      EXPECT_TRUE(o.report.is_complete);
      EXPECT_TRUE(o.report.is_clean()) << describe(o.report);
      EXPECT_EQ(o.report.num_executions, 1U) << "no two steps of different workers interfere";
      EXPECT_THAT(o.report.races, IsEmpty());
      EXPECT_THAT(o.report.findings, IsEmpty());
    }
  }
}

TEST(Explore, TheBoundTensorsHoldTheSequentialResult) {
  const Outcome o = explore(plan_of(short_chain(), 2, 2));
  ASSERT_EQ(o.outputs.size(), 1U);
  // x counts from 1, b from 2: x + b + b.
  for (size_t i = 0; i < o.outputs[0].size(); ++i)
    EXPECT_EQ(to_float(o.outputs[0][i]), static_cast<float>(3 * (i % 5) + 1 + 2 + 2));
}

TEST(Explore, AMissingWaitReadsAStaleValue) {
  KernelPlan plan = plan_of(short_chain(), 4, 3);  // first[0] on worker 0, second[0] on worker 1
  drop_waits(task(plan, 4));
  const Outcome o = explore(plan);
  EXPECT_TRUE(o.report.is_complete);
  EXPECT_GT(o.report.num_different, 0U) << describe(o.report);
  // Where the value is seen early, all is well: not every execution is wrong.
  EXPECT_LT(o.report.num_different, o.report.num_executions);
  ASSERT_FALSE(o.report.findings.empty());
  EXPECT_THAT(o.report.findings[0], HasSubstr("'second.out' differs from byte 0 on"));
  EXPECT_THAT(o.report.races, ::testing::ElementsAre(ExploreRace{0, 4, false}));
  EXPECT_EQ(describe(o.report.races[0], plan),
            "task 0 of first writes what task 4 of second reads, and nothing orders "
            "them");
}

TEST(Explore, AMissingWaitWithinOneQueueIsHarmless) {
  KernelPlan plan = plan_of(short_chain(), 2, 2);  // first[r] and second[r] stand in one queue
  drop_waits(task(plan, 2));
  drop_waits(task(plan, 3));
  const Outcome o = explore(plan);
  EXPECT_TRUE(o.report.is_complete);
  EXPECT_TRUE(o.report.is_clean()) << describe(o.report);
  EXPECT_THAT(o.report.races, IsEmpty());
}

TEST(Explore, ADroppedSignalIsADeadlockThatNamesTheWaiter) {
  KernelPlan plan = plan_of(short_chain(), 4, 3);
  drop_signals(task(plan, 1));
  const Outcome o = explore(plan);
  EXPECT_EQ(o.report.num_deadlocks, o.report.num_executions);
  ASSERT_FALSE(o.report.findings.empty());
  EXPECT_THAT(o.report.findings[0], HasSubstr("deadlock: worker 2 waits in slot 1 (second, task 5) for event 1"));
  EXPECT_THAT(o.report.findings[0], HasSubstr("no instruction signals it"));
  EXPECT_EQ(o.report.deadlock.records.size(), 3U);
}

TEST(Explore, SwappedInstructionsAreACircle) {
  KernelPlan plan = plan_of(short_chain(), 2, 2);
  std::swap(plan.instructions[0], plan.instructions[1]);
  const Outcome o = explore(plan);
  EXPECT_EQ(o.report.num_deadlocks, 1U);
  EXPECT_THAT(o.report.findings[0], HasSubstr("the waits form a circle: worker 0 -> worker 0"));
}

TEST(Explore, ALoweredThresholdOrADuplicatedSignalLetsAWaitPassEarly) {
  // Workers: 0 runs 0, 3, 6; 1 runs 1, 4, 7; 2 runs 2, 5. Task 7 (second[3]) needs what task 3 wrote.
  for (const bool lower_threshold : {true, false}) {
    KernelPlan plan = plan_of(short_chain(), 4, 3, EventMode::kWhole);
    if (lower_threshold) {
      task(plan, 4).waits[0].threshold = 3;
      // Whatever three signals it sees, task 0's is among them: task 3 stands behind it. Task 4 needs no more.
      const Outcome harmless = explore(plan);
      EXPECT_TRUE(harmless.report.is_complete);
      EXPECT_TRUE(harmless.report.is_clean()) << describe(harmless.report);
      task(plan, 7).waits[0].threshold = 3;
    } else {
      abi::Instruction& i = task(plan, 0);
      i.signals[0] = abi::make_signal(i.signals[0].event, 2, abi::publication(i.signals[0]));
    }
    const Outcome o = explore(plan);
    EXPECT_TRUE(o.report.is_complete);
    EXPECT_EQ(o.report.num_deadlocks, 0U);
    EXPECT_GT(o.report.num_different, 0U) << describe(o.report);
    EXPECT_LT(o.report.num_different, o.report.num_executions) << describe(o.report);
    EXPECT_THAT(o.report.races, ::testing::Contains(ExploreRace{3, 7, false}));
  }
}

// y3 takes y's place: its tasks overwrite what z may have yet to read. Nothing orders the two.
TEST(Explore, AliasedBuffersAreFoundByTheOverwrittenReader) {
  KernelPlan plan = plan_of(diamond(), 2, 2);
  const auto tensor = [&](std::string_view name) {
    return static_cast<uint32_t>(std::ranges::find(plan.tensors, name, &PlanTensor::name) - plan.tensors.begin());
  };
  const uint32_t y = tensor("y.out");
  const uint32_t y3 = tensor("y3.out");
  ASSERT_LT(std::max(y, y3), plan.tensors.size());
  for (PlanOperandRow& row : plan.operand_rows) std::ranges::replace(row.tensors, y3, y);
  // On their own queues z comes first by chance; on queues of other workers it need not.
  for (uint32_t s = 0; s < plan.queue_depth; ++s) {
    abi::Instruction& a = plan.instructions[s];
    abi::Instruction& b = plan.instructions[plan.queue_depth + s];
    if (plan.operand_rows[a.operand_row].name == "z") std::swap(a, b);
  }
  const Outcome o = explore(plan);
  EXPECT_TRUE(o.report.is_complete);
  EXPECT_GT(o.report.num_different, 0U) << describe(o.report);
  EXPECT_THAT(o.report.findings.at(0), HasSubstr("'z.out'"));
}

TEST(Explore, LimitsAndBadPlansAreNamed) {
  const auto message = [](const KernelPlan& plan) {
    const auto e = prepare_explorer(std::make_shared<const KernelPlan>(plan));
    return e ? std::string("accepted") : e.error().message;
  };
  EXPECT_THAT(message(plan_of(short_chain(), 70, 65)), HasSubstr("65 workers"));
  KernelPlan plan = plan_of(short_chain(), 4, 3);
  task(plan, 4).waits[0].event = 99;
  EXPECT_THAT(message(plan), HasSubstr("task 4 waits for event 99"));
  plan = plan_of(short_chain(), 4, 3);
  task(plan, 4).payload[0] = 1U << 30;
  EXPECT_THAT(message(plan), ::testing::Not(HasSubstr("accepted")));
}

TEST(Explore, MaxExecutionsEndsTheSearch) {
  KernelPlan plan = plan_of(short_chain(), 4, 3);
  for (uint32_t t = 4; t < 8; ++t) drop_waits(task(plan, t));
  const Outcome o = explore(plan, {3});
  EXPECT_EQ(o.report.num_executions, 3U);
  EXPECT_FALSE(o.report.is_complete);
  EXPECT_THAT(describe(o.report), HasSubstr("there are more"));
}

// Every single mutation of small plans: is it harmful? The reduced search must say what all orders say.
TEST(Explore, TheReductionJudgesAsAllOrdersDo) {
  struct Mutation {
    std::string name;
    KernelPlan plan;
  };
  std::vector<Mutation> mutations;
  for (const EventMode mode : {EventMode::kExact, EventMode::kWhole}) {
    const KernelPlan good = plan_of(short_chain(), 3, 2, mode);
    mutations.push_back({"none", good});
    for (uint32_t t = 0; t < good.num_tasks; ++t) {
      const auto add = [&](std::string what, const std::function<void(KernelPlan&, abi::Instruction&)>& change) {
        KernelPlan plan = good;
        change(plan, task(plan, t));
        mutations.push_back({fmt::format("{} {} of task {}", to_string(mode), what, t), std::move(plan)});
      };
      add("drop waits", [](KernelPlan&, abi::Instruction& i) { drop_waits(i); });
      add("drop signals", [](KernelPlan&, abi::Instruction& i) { drop_signals(i); });
      add("double the signal", [](KernelPlan&, abi::Instruction& i) {
        if (abi::num_signals(i) != 0) i.signals[0] = abi::make_signal(i.signals[0].event, 2, 0);
      });
      add("lower the threshold", [](KernelPlan&, abi::Instruction& i) {
        if (abi::num_waits(i) != 0 && i.waits[0].threshold > 1) --i.waits[0].threshold;
      });
      add("swap with the next", [](KernelPlan& plan, abi::Instruction& i) {
        const auto at = static_cast<size_t>(&i - plan.instructions.data());
        if (at + 1 < plan.instructions.size()) std::swap(plan.instructions[at], plan.instructions[at + 1]);
      });
    }
  }
  uint64_t harmful = 0, reduced = 0, all = 0;
  for (const Mutation& m : mutations) {
    const ExploreReport fast = explore(m.plan, {5000}).report;
    const ExploreReport slow = explore(m.plan, {50000, true}).report;
    ASSERT_TRUE(fast.is_complete && slow.is_complete) << m.name << ": " << describe(fast) << " / " << describe(slow);
    EXPECT_EQ(fast.num_deadlocks != 0, slow.num_deadlocks != 0) << m.name;
    EXPECT_EQ(fast.num_different != 0, slow.num_different != 0)
        << m.name << ": " << describe(fast) << " / " << describe(slow);
    harmful += fast.is_clean() ? 0 : 1;
    reduced += fast.num_executions;
    all += slow.num_executions;
  }
  EXPECT_GT(harmful, 10U);
  EXPECT_LT(harmful, mutations.size() - 10);
  EXPECT_LT(reduced * 4, all);
  RecordProperty("mutations", fmt::format("{} ({} harmful), {} executions, {} without reduction", mutations.size(),
                                          harmful, reduced, all));
}

}  // namespace
}  // namespace megartp
