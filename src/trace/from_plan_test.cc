#include "trace/from_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backend.h"
#include "base/bfloat16.h"
#include "plan/plan_test_support.h"
#include "trace/analysis.h"

namespace megartp::trace {
namespace {

using ::testing::HasSubstr;

// Records of a run of the plan in which every task takes 10 ticks and the queues run one after another.
RawTrace made_up_records(const KernelPlan& plan) {
  RawTrace raw;
  raw.clock_domain = "made up";
  raw.ns_per_tick = 2;
  raw.begin = 1000;
  raw.end = 1000 + 20 * uint64_t{plan.num_tasks};
  uint64_t at = 1000;
  for (uint32_t w = 0; w < plan.num_workers; ++w)
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      raw.tasks.push_back({w, slot, i.task_id, abi::kTraceSent, at, at + 3, at + 10, 0});
      at += 10;
    }
  return raw;
}

TraceMeta static_meta() {
  TraceMeta meta;
  meta.name = meta.backend = "cpu-threads";
  meta.schedule = "static";
  return meta;
}

TEST(TraceOfPlan, NamesWhatTheRecordsMean) {
  const TaskGraph graph = megartp::testing::lowered_chain(2, 3);
  const auto plan = pack(graph, *find_target("cpu"), {Packer::kRoundRobin, 2});
  ASSERT_TRUE(plan);
  const auto trace = trace_of_plan(*plan, task_costs(graph), made_up_records(*plan), static_meta());
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->meta.graph, "chain");
  EXPECT_EQ(trace->meta.packer, "round-robin");
  EXPECT_EQ(trace->meta.begin_ns, 2000U);
  EXPECT_EQ(trace->meta.span_ns, 40U * plan->num_tasks);
  EXPECT_EQ(trace->meta.num_lost, 0U);
  ASSERT_EQ(trace->lanes.size(), 2U);
  EXPECT_EQ(trace->lanes[1].name, "worker 1");
  ASSERT_EQ(trace->tasks.size(), plan->num_tasks);
  const TraceTask& task = trace->tasks[1];
  EXPECT_EQ(task.visible_ns, 20U);
  EXPECT_EQ(task.ready_ns, 26U);
  EXPECT_EQ(task.done_ns, 40U);
  EXPECT_EQ(trace->ops[task.op].name, plan->operand_rows[task.op].name);
  EXPECT_THAT(trace->texts[task.tile], HasSubstr("row"));
  EXPECT_GT(task.other_bytes, 0U);
  ASSERT_EQ(trace->events.size(), plan->events.size());
  for (size_t e = 0; e < trace->events.size(); ++e) {
    uint32_t total = 0;
    for (const EventSignal& s : trace->events[e].signals) total += s.increment;
    EXPECT_EQ(total, plan->events[e].total);
    EXPECT_FALSE(trace->events[e].waits.empty());
  }
}

TEST(TraceOfPlan, CountsWhatIsMissing) {
  const KernelPlan plan = megartp::testing::packed_chain(2, 3, 2);
  RawTrace raw = made_up_records(plan);
  raw.tasks.erase(raw.tasks.begin() + 1);
  const auto trace = trace_of_plan(plan, {}, raw, static_meta());
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->meta.num_lost, 1U);
  EXPECT_EQ(trace->tasks.size(), plan.num_tasks - 1);
  EXPECT_EQ(analyse(*trace).critical_ns(), trace->meta.span_ns);
}

TEST(TraceOfPlan, RefusesRecordsThatCannotBe) {
  const KernelPlan plan = megartp::testing::packed_chain(2, 3, 2);
  const auto error_of = [&plan](auto change) {
    RawTrace raw = made_up_records(plan);
    change(raw);
    const auto trace = trace_of_plan(plan, {}, raw, static_meta());
    return trace ? std::string("accepted") : trace.error().message;
  };
  EXPECT_EQ(error_of([](RawTrace&) {}), "accepted");
  EXPECT_THAT(error_of([](RawTrace& r) { r.tasks[0].worker = 2; }), HasSubstr("worker 2 of 2"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.tasks[0].task_id = 77; }), HasSubstr("task 77"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.tasks[1].task_id = r.tasks[0].task_id; }), HasSubstr("comes twice"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.tasks[0].slot = 1000; }), HasSubstr("does not stand"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.tasks[0].ready = 0; }), HasSubstr("ready 0"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.tasks[0].done = ~uint64_t{0}; }), HasSubstr("done"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.end = 0; }), HasSubstr("from 1000 to 0"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.ns_per_tick = -1; }), HasSubstr("of -1 ns"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.roles.push_back({0, 0, 9, 0, 1000, 1001}); }), HasSubstr("role 9"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.roles.push_back({5, 0, 1, 0, 1000, 1001}); }), HasSubstr("worker 5"));
}

TEST(TraceOfSimulation, KeepsTheSimulatedTimes) {
  const TaskGraph graph = megartp::testing::lowered_chain(4, 64);
  const TargetDesc target = *find_target("h200");
  const auto plan = pack(graph, target, {Packer::kCriticalPath, 8});
  ASSERT_TRUE(plan);
  const std::vector<TaskCost> costs = task_costs(graph);
  const auto result = simulate(make_sim_program(*plan, costs), sim_costs(target, 8));
  ASSERT_TRUE(result) << result.error().to_string();
  const auto trace = trace_of_simulation(*plan, costs, *result);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->meta.backend, "simulated");
  EXPECT_EQ(trace->meta.span_ns, result->span_ns);
  for (const TraceTask& task : trace->tasks) EXPECT_EQ(task.done_ns, result->tasks[task.id].done_ns);
  EXPECT_FALSE(trace->roles.empty());
  EXPECT_EQ(analyse(*trace).critical_ns(), result->span_ns);
}

// --- what cpu-threads records ---

class RecordedChain : public ::testing::TestWithParam<Schedule> {
 protected:
  static constexpr int64_t kRows = 33;
  void SetUp() override {
    plan_ = std::make_shared<const KernelPlan>(megartp::testing::packed_chain(5, kRows, 3));
    CpuThreadsOptions options;
    options.schedule = GetParam();
    auto executable = prepare_cpu_threads(plan_, options);
    ASSERT_TRUE(executable) << executable.error().to_string();
    executable_ = std::move(*executable);
    ASSERT_TRUE(executable_->bind("x", x_.data(), x_.size() * 2));
    ASSERT_TRUE(executable_->bind("b", b_.data(), b_.size() * 2));
    ASSERT_TRUE(executable_->bind("add4.out", out_.data(), out_.size() * 2));
  }
  std::vector<bf16> x_ = std::vector<bf16>(kRows * 64), b_ = x_, out_ = x_;
  std::shared_ptr<const KernelPlan> plan_;
  std::unique_ptr<Executable> executable_;
};

TEST_P(RecordedChain, EveryTaskInTheMeasuredTime) {
  ASSERT_TRUE(executable_->run());
  EXPECT_EQ(executable_->raw_trace(), nullptr);
  ASSERT_TRUE(executable_->record_trace(plan_->num_tasks));
  for (int run = 0; run < 3; ++run) {
    const auto stats = executable_->run();
    ASSERT_TRUE(stats) << stats.error().to_string();
    const RawTrace* raw = executable_->raw_trace();
    ASSERT_NE(raw, nullptr);
    EXPECT_EQ(raw->tasks.size(), plan_->num_tasks);
    EXPECT_EQ(raw->num_lost, 0U);
    TraceMeta meta;
    meta.schedule = to_string(GetParam());
    const auto trace = trace_of_plan(*plan_, {}, *raw, std::move(meta));
    ASSERT_TRUE(trace) << trace.error().to_string();
    // Nothing that a task waited for was done after the task was ready.
    for (const TraceEvent& e : trace->events)
      for (const EventWait& w : e.waits)
        for (const EventSignal& s : e.signals) EXPECT_LE(trace->tasks[s.task].done_ns, trace->tasks[w.task].ready_ns);
    // What run() measured is what the links of the critical path add up to.
    EXPECT_NEAR(static_cast<double>(analyse(*trace).critical_ns()), stats->wall_ns, 0.02 * stats->wall_ns);
  }
  ASSERT_TRUE(executable_->record_trace(0));
  ASSERT_TRUE(executable_->run());
  EXPECT_EQ(executable_->raw_trace(), nullptr);
}

TEST_P(RecordedChain, CountsRecordsThatFindNoRoom) {
  ASSERT_TRUE(executable_->record_trace(2));
  ASSERT_TRUE(executable_->run());
  const RawTrace* raw = executable_->raw_trace();
  ASSERT_NE(raw, nullptr);
  EXPECT_LE(raw->tasks.size(), 6U);
  EXPECT_EQ(raw->tasks.size() + raw->num_lost, plan_->num_tasks);
  TraceMeta meta;
  meta.schedule = to_string(GetParam());
  const auto trace = trace_of_plan(*plan_, {}, *raw, std::move(meta));
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->meta.num_lost, raw->num_lost);
}

INSTANTIATE_TEST_SUITE_P(Schedules, RecordedChain, ::testing::Values(Schedule::kStatic, Schedule::kDynamic),
                         [](const auto& param) { return std::string(to_string(param.param)); });

}  // namespace
}  // namespace megartp::trace
