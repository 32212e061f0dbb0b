// cpu-threads on hand-made plans: runs, repeats, bindings, and plans that cannot progress.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backend.h"
#include "backends/cpu_threads/stall_report.h"
#include "backends/cpu_threads/unproved.h"
#include "base/bfloat16.h"
#include "lowering/lower.h"
#include "plan/fault_dump.h"
#include "plan/kernel_plan.h"
#include "plan/target.h"

namespace megartp {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// s1 = a + b, s2 = s1 + b; two chained ops of `m` row tasks each.
OpGraph chain() {
  OpGraph g("chain");
  const Tensor a = g.runtime_arg("a", DType::kBF16, {"M", 8});
  const Tensor b = g.runtime_arg("b", DType::kBF16, {"M", 8});
  const Tensor s1 = g.add(a, b, "first");
  g.set_outputs({g.add(s1, b, "second")});
  return g;
}

KernelPlan chain_plan(int64_t m, uint32_t workers) {
  ShapeEnv shapes;
  shapes.set("M", m);
  const TaskGraph tasks = lower(chain(), shapes).value();
  return pack(tasks, find_target("cpu").value(), {Packer::kRoundRobin, workers}).value();
}

struct Buffers {
  std::vector<bf16> a, b, out;
  explicit Buffers(size_t n) : a(n, to_bf16(1.0F)), b(n, to_bf16(2.0F)), out(n) {}
  void bind(Executable& e) {
    ASSERT_TRUE(e.bind("a", a.data(), a.size() * 2));
    ASSERT_TRUE(e.bind("b", b.data(), b.size() * 2));
    ASSERT_TRUE(e.bind("second.out", out.data(), out.size() * 2));
  }
};

std::unique_ptr<Executable> prepare(KernelPlan plan, CpuThreadsOptions options = {}) {
  auto e = prepare_cpu_threads(std::make_shared<const KernelPlan>(std::move(plan)), options);
  EXPECT_TRUE(e) << e.error().to_string();
  return e ? std::move(*e) : nullptr;
}

TEST(CpuThreads, RunsAndCountsTasks) {
  Buffers buffers(5 * 8);
  const auto e = prepare(chain_plan(5, 3));
  buffers.bind(*e);
  e->poison();
  const auto stats = e->run();
  ASSERT_TRUE(stats) << stats.error().to_string();
  for (const bf16 x : buffers.out) EXPECT_EQ(to_float(x), 5.0F);
  ASSERT_EQ(stats->stages.size(), 2U);
  EXPECT_EQ(stats->stages[0].num_tasks, 5U);
  EXPECT_EQ(stats->stages[1].num_tasks, 5U);
}

TEST(CpuThreads, RecordsTasksWhereThereIsRoom) {
  for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) {
    Buffers buffers(40 * 8);
    CpuThreadsOptions options;
    options.schedule = schedule;
    options.collect_stats = false;
    const auto e = prepare(chain_plan(40, 3), options);
    buffers.bind(*e);
    for (const uint32_t room : {80U, 2U, 0U, 80U}) {
      ASSERT_TRUE(e->record_trace(room));
      const auto stats = e->run();
      ASSERT_TRUE(stats) << stats.error().to_string();
      const RawTrace* raw = e->raw_trace();
      ASSERT_EQ(raw == nullptr, room == 0);
      if (raw == nullptr) continue;
      EXPECT_EQ(raw->tasks.size() + raw->num_lost, 80U);
      EXPECT_EQ(raw->num_lost == 0, room == 80);
      EXPECT_EQ(static_cast<double>(raw->end - raw->begin), stats->wall_ns);
      EXPECT_GT(raw->resolution_ns, 0);
      std::vector<uint64_t> done(3, raw->begin);  // of each worker's last task
      for (const abi::TraceRecord& r : raw->tasks) {
        ASSERT_LT(r.worker, 3U);
        EXPECT_TRUE(raw->begin <= r.visible && r.visible <= r.ready && r.ready <= r.done && r.done <= raw->end);
        EXPECT_LE(done[r.worker], r.ready);
        EXPECT_EQ(r.flags, abi::kTraceSent);
        done[r.worker] = r.done;
      }
    }
  }
}

TEST(CpuThreads, AFailedRunLeavesNoTrace) {
  Buffers buffers(5 * 8);
  CpuThreadsOptions options;
  options.lose_signals_of = 0;
  const auto e = prepare(chain_plan(5, 3), options);
  buffers.bind(*e);
  ASSERT_TRUE(e->record_trace(10));
  const auto stats = e->run();
  ASSERT_FALSE(stats);
  EXPECT_EQ(stats.error().code, ErrorCode::kDeadlock);
  EXPECT_EQ(e->raw_trace(), nullptr);
}

TEST(CpuThreads, AddressesMayChangeBetweenRuns) {
  Buffers one(4 * 8);
  Buffers two(4 * 8);
  std::fill(two.a.begin(), two.a.end(), to_bf16(10.0F));
  const auto e = prepare(chain_plan(4, 2));
  one.bind(*e);
  ASSERT_TRUE(e->run());
  two.bind(*e);
  ASSERT_TRUE(e->run());
  EXPECT_EQ(to_float(one.out[0]), 5.0F);
  EXPECT_EQ(to_float(two.out[0]), 14.0F);
}

TEST(CpuThreads, BindingErrorsNameTheTensor) {
  std::vector<bf16> memory(64);
  const auto e = prepare(chain_plan(4, 2));
  EXPECT_THAT(e->bind("c", memory.data(), 64).error().message, HasSubstr("'c'"));
  EXPECT_THAT(e->bind("a", memory.data(), 63).error().message, HasSubstr("'a' needs 64 bytes, got 63"));
  EXPECT_THAT(e->bind("a", nullptr, 64).error().message, HasSubstr("null"));
  EXPECT_THAT(e->bind("a", reinterpret_cast<char*>(memory.data()) + 1, 64).error().message, HasSubstr("misaligned"));
  EXPECT_THAT(e->bind("first.out", memory.data(), 64).error().message, HasSubstr("workspace"));
  EXPECT_THAT(e->run().error().message, HasSubstr("'a' is not bound"));
}

// The two queues of one worker each wait for what the other does later: structurally sound, yet it cannot progress.
KernelPlan crossed_plan() {
  KernelPlan plan = chain_plan(2, 2);
  // Queue w holds first[w], second[w]; reversed, second[w] waits for first[w], which stands behind it.
  for (uint32_t w = 0; w < 2; ++w)
    std::swap(plan.instructions[w * plan.queue_depth], plan.instructions[w * plan.queue_depth + 1]);
  return plan;
}

// The watchdog stands behind the proof: it is shown what the proof would have refused.
std::unique_ptr<Executable> prepare_stuck(const CpuThreadsOptions& options = {}) {
  return std::move(prepare_unproved(std::make_shared<const KernelPlan>(crossed_plan()), options).value());
}

TEST(CpuThreads, RefusesAPlanThatCannotProgress) {
  const auto e = prepare_cpu_threads(std::make_shared<const KernelPlan>(crossed_plan()));
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().code, ErrorCode::kDeadlock);
  EXPECT_THAT(e.error().message, HasSubstr("queue_cycle"));
  EXPECT_THAT(e.error().message, HasSubstr("worker 0 slot 0 (second tile 0)"));
}

TEST(CpuThreads, RefusesARace) {
  KernelPlan plan = chain_plan(2, 2);
  // Worker 0 runs first[0], second[1]: its wait for first[1], of worker 1, goes.
  for (abi::Instruction& i : plan.instructions) {
    if (abi::num_waits(i) == 0) continue;
    std::swap(plan.instructions[1], plan.instructions[plan.queue_depth + 1]);
    i.waits[0] = {};
    i.counts = abi::make_counts(0, abi::num_signals(i), abi::num_payload(i));
    break;
  }
  const auto e = prepare_cpu_threads(std::make_shared<const KernelPlan>(std::move(plan)));
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(e.error().message, HasSubstr("may read first.out"));
}

TEST(CpuThreads, ADeadlockIsNamed) {
  Buffers buffers(2 * 8);
  CpuThreadsOptions options;
  options.timeout = milliseconds(60000);
  const auto e = prepare_stuck(options);
  buffers.bind(*e);
  const auto start = std::chrono::steady_clock::now();
  const auto result = e->run();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20))
      << "a proved deadlock needs no time-out";
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlock);
  EXPECT_EQ(exit_code(result.error().code), 6);
  EXPECT_THAT(result.error().message, HasSubstr("2 of 2 workers wait"));
  EXPECT_THAT(result.error().details, HasSubstr("worker 0: task 2 of second (worker 0, slot 0) waits for event"));
  EXPECT_THAT(result.error().details,
              HasSubstr("expects 1, has 0; still to be signalled by task 0 of first (worker 0, slot 1)"));
  EXPECT_THAT(result.error().details, HasSubstr("worker 1: "));
}

TEST(CpuThreads, ALostSignalEndsInANamedErrorAndARecordThatBlamesItsTask) {
  for (const Schedule schedule : {Schedule::kStatic, Schedule::kDynamic}) {
    SCOPED_TRACE(to_string(schedule));
    Buffers buffers(6 * 8);
    const KernelPlan plan = chain_plan(6, 3);
    CpuThreadsOptions options;
    options.schedule = schedule;
    options.lose_signals_of = 4;
    const auto e = prepare(plan, options);
    buffers.bind(*e);
    EXPECT_EQ(e->fault(), nullptr);
    const auto result = e->run();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kDeadlock) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr("task 10 of second"));
    EXPECT_THAT(result.error().details, HasSubstr("cause: "));
    EXPECT_THAT(result.error().details, HasSubstr("its signal was lost"));
    ASSERT_NE(e->fault(), nullptr);
    const auto explained = explain_fault(*e->fault(), &plan);
    ASSERT_TRUE(explained) << explained.error().to_string();
    EXPECT_THAT(explained->sentence, HasSubstr("(second, task 10) for event 4 of first: 0 of 1 signals came; task 4 "
                                               "(first tile 4"));
    EXPECT_THAT(explained->sentence, HasSubstr("never signalled because it ran to its end and its signal was lost"));
    // The file keeps all of it.
    const auto read_back = parse_fault_dump(serialize_fault_dump(*e->fault()));
    ASSERT_TRUE(read_back) << read_back.error().to_string();
    EXPECT_EQ(explain_fault(*read_back, &plan)->sentence, explained->sentence);
  }
}

TEST(CpuThreads, AGoodRunForgetsTheFault) {
  Buffers buffers(2 * 8);
  const auto e = prepare_stuck();
  ASSERT_FALSE(e->run());  // not bound: no fault either
  EXPECT_EQ(e->fault(), nullptr);
  buffers.bind(*e);
  const auto result = e->run();
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().details, HasSubstr("the waits form a circle: worker 0 -> worker 0"));
  ASSERT_NE(e->fault(), nullptr);
  EXPECT_EQ(e->fault()->records.size(), 2U);
  EXPECT_EQ(e->fault()->records[0].kind, abi::kFaultDeadlock);
}

TEST(CpuThreads, AnExecutableSurvivesADeadlock) {
  Buffers buffers(2 * 8);
  const auto e = prepare_stuck();
  buffers.bind(*e);
  for (int i = 0; i < 3; ++i) {
    const auto result = e->run();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kDeadlock);
  }
}

TEST(CpuThreads, CountersRunOnOverManyRuns) {
  Buffers buffers(3 * 8);
  const auto e = prepare(chain_plan(3, 3));
  buffers.bind(*e);
  for (int i = 0; i < 2000; ++i) {
    const float value = static_cast<float>(i % 7);
    std::fill(buffers.a.begin(), buffers.a.end(), to_bf16(value));
    ASSERT_TRUE(e->run()) << i;
    for (const bf16 x : buffers.out) ASSERT_EQ(to_float(x), value + 4.0F) << i;
  }
}

TEST(CpuThreads, SeveralExecutablesOfOnePlanRunAtOnce) {
  const auto plan = std::make_shared<const KernelPlan>(chain_plan(8, 2));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&plan, t] {
      Buffers buffers(8 * 8);
      std::fill(buffers.a.begin(), buffers.a.end(), to_bf16(static_cast<float>(t)));
      auto e = std::move(prepare_cpu_threads(plan).value());
      buffers.bind(*e);
      for (int i = 0; i < 50; ++i) ASSERT_TRUE(e->run());
      for (const bf16 x : buffers.out) EXPECT_EQ(to_float(x), static_cast<float>(t) + 4.0F);
    });
  }
}

// One row: task 0 is `first`, task 1 `second`, which waits for it.
struct TwoTasks {
  PlanRuntime runtime;
  Buffers buffers{8};
  std::vector<WorkerState> states{1};
  std::vector<uint32_t> order{0, 1};

  explicit TwoTasks(const CpuThreadsOptions& options = {})
      : runtime(std::make_shared<const KernelPlan>(chain_plan(1, 1)), options) {
    EXPECT_TRUE(runtime.bindings().bind("a", buffers.a.data(), buffers.a.size() * 2));
    EXPECT_TRUE(runtime.bindings().bind("b", buffers.b.data(), buffers.b.size() * 2));
    EXPECT_TRUE(runtime.bindings().bind("second.out", buffers.out.data(), buffers.out.size() * 2));
    EXPECT_TRUE(runtime.begin());
  }
  void run(uint32_t task) { runtime.execute(runtime.instruction_of(task), {}, nullptr); }
};

// The threads of a busy machine may take longer to leave than the watchdog takes to look twice.
TEST(StallReport, ARunWhoseWorkIsDoneIsNotStuck) {
  TwoTasks t;
  t.run(0);
  t.run(1);
  EXPECT_FALSE(look_at_tasks(t.runtime, t.states, t.order).all_waiting);
  t.states[0].phase = WorkerPhase::kDone;
  EXPECT_FALSE(look_at(t.runtime, t.states).all_waiting);
}

TEST(StallReport, ATaskThatCouldStartIsNotStuck) {
  TwoTasks t;
  EXPECT_FALSE(look_at_tasks(t.runtime, t.states, t.order).all_waiting) << "task 0 waits for nothing";
  t.run(0);
  EXPECT_FALSE(look_at_tasks(t.runtime, t.states, t.order).all_waiting) << "task 1's event is reached";
}

TEST(StallReport, ATaskWhoseSignalWasLostIsStuckWithoutAWorker) {
  CpuThreadsOptions options;
  options.lose_signals_of = 0;
  TwoTasks t(options);
  t.run(0);
  const StallReport report = look_at_tasks(t.runtime, t.states, t.order);
  EXPECT_TRUE(report.all_waiting);
  ASSERT_EQ(report.held.size(), 1U);
  EXPECT_EQ(report.held[0].task, 1U);
}

}  // namespace
}  // namespace megartp
