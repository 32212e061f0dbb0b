// The dynamic scheduler on hand-made plans: any number of workers and schedulers, tiny queues, many runs, and plans
// that cannot progress.
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backend.h"
#include "backends/cpu_threads/dispatch_table.h"
#include "backends/cpu_threads/rings.h"
#include "backends/cpu_threads/unproved.h"
#include "base/bfloat16.h"
#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kColumns = 64;

// `layers` adds over m rows; the result of row r is x[r] + layers * b.
struct Chain {
  int layers;
  int64_t m;
  std::vector<bf16> x, b, out;

  Chain(int num_layers, int64_t rows)
      : layers(num_layers),
        m(rows),
        x(static_cast<size_t>(rows * kColumns)),
        b(x.size(), to_bf16(1.0F)),
        out(x.size()) {
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i / kColumns;
      x[i] = to_bf16(static_cast<float>(row));
    }
  }
  void bind(Executable& e) {
    ASSERT_TRUE(e.bind("x", x.data(), x.size() * 2));
    ASSERT_TRUE(e.bind("b", b.data(), b.size() * 2));
    ASSERT_TRUE(e.bind(fmt::format("add{}.out", layers - 1), out.data(), out.size() * 2));
  }
  bool is_right() const {
    for (size_t i = 0; i < out.size(); ++i)
      if (to_float(out[i]) != to_float(x[i]) + static_cast<float>(layers)) return false;
    return true;
  }
};

KernelPlan plan_of(const Chain& chain, uint32_t workers, EventMode mode) {
  LowerOptions options;
  options.events.mode = mode;
  const auto tasks = lower(testing::add_chain(chain.layers), testing::rows(chain.m), options);
  EXPECT_TRUE(tasks);
  return pack(*tasks, *find_target("cpu"), {Packer::kRoundRobin, workers}).value();
}

std::unique_ptr<Executable> prepare_dynamic(KernelPlan plan, const CpuThreadsOptions& options) {
  auto e = prepare_cpu_threads(std::make_shared<const KernelPlan>(std::move(plan)), options);
  EXPECT_TRUE(e) << e.error().to_string();
  return e ? std::move(*e) : nullptr;
}

CpuThreadsOptions dynamic(Dispatch dispatch, uint32_t schedulers, uint32_t ring_entries = 256) {
  CpuThreadsOptions options;
  options.schedule = Schedule::kDynamic;
  options.dispatch = dispatch;
  options.num_schedulers = schedulers;
  options.ring_entries = ring_entries;
  return options;
}

constexpr Dispatch kAllDispatch[] = {Dispatch::kMixed, Dispatch::kAhead, Dispatch::kJustInTime};

TEST(Dynamic, AnyNumberOfWorkersAndSchedulers) {
  for (const Dispatch dispatch : kAllDispatch) {
    for (const EventMode mode : {EventMode::kExact, EventMode::kWhole}) {
      for (const auto& [workers, schedulers] : {std::pair{1U, 1U}, {2U, 2U}, {5U, 4U}, {16U, 4U}}) {
        SCOPED_TRACE(
            fmt::format("{} {} {} workers {} schedulers", to_string(dispatch), to_string(mode), workers, schedulers));
        Chain chain(3, 9);
        const auto e = prepare_dynamic(plan_of(chain, workers, mode), dynamic(dispatch, schedulers));
        chain.bind(*e);
        e->poison();
        const auto stats = e->run();
        ASSERT_TRUE(stats) << stats.error().to_string() << stats.error().details;
        EXPECT_TRUE(chain.is_right());
        for (const StageStats& s : stats->stages) EXPECT_EQ(s.num_tasks, 9U);
      }
    }
  }
}

// Queues of two entries are full all the time: nothing may be lost or overwritten, nobody may wait for ever.
TEST(Dynamic, FullQueuesHoldTheirWritersUp) {
  for (const Dispatch dispatch : kAllDispatch) {
    for (const EventMode mode : {EventMode::kExact, EventMode::kWhole}) {
      Chain chain(4, 40);
      const auto e = prepare_dynamic(plan_of(chain, 3, mode), dynamic(dispatch, 2, 2));
      chain.bind(*e);
      for (int run = 0; run < 20; ++run) {
        e->poison();
        const auto stats = e->run();
        ASSERT_TRUE(stats) << to_string(dispatch) << stats.error().to_string() << stats.error().details;
        ASSERT_TRUE(chain.is_right()) << run;
      }
    }
  }
}

TEST(Dynamic, TwoHundredRunsWithoutAReset) {
  for (const Dispatch dispatch : kAllDispatch) {
    Chain chain(3, 10);
    CpuThreadsOptions options = dynamic(dispatch, 2, 8);
    options.randomize = true;
    const auto e = prepare_dynamic(plan_of(chain, 4, EventMode::kExact), options);
    chain.bind(*e);
    for (int run = 0; run < 200; ++run) {
      e->poison();
      ASSERT_TRUE(e->run()) << run;
      ASSERT_TRUE(chain.is_right()) << to_string(dispatch) << " run " << run;
    }
  }
}

// The static walker cannot run this plan: each queue has its tasks in the wrong order.
TEST(Dynamic, QueueOrderDoesNotMatter) {
  Chain chain(2, 2);
  KernelPlan plan = plan_of(chain, 2, EventMode::kExact);
  for (uint32_t w = 0; w < 2; ++w)
    std::swap(plan.instructions[w * plan.queue_depth], plan.instructions[w * plan.queue_depth + 1]);
  const auto e = prepare_dynamic(plan, dynamic(Dispatch::kMixed, 1));
  chain.bind(*e);
  ASSERT_TRUE(e->run());
  EXPECT_TRUE(chain.is_right());
}

// Sound where queues are walked, because one queue holds both; not where their order is ignored.
TEST(Dynamic, AnOrderThatOnlyAQueueGivesIsRefused) {
  Chain chain(2, 2);
  KernelPlan plan = plan_of(chain, 1, EventMode::kExact);
  for (abi::Instruction& i : plan.instructions) {
    if (i.task_id != 2) continue;
    i.waits[0] = {};
    i.counts = abi::make_counts(0, abi::num_signals(i), abi::num_payload(i));
  }
  const auto shared = std::make_shared<const KernelPlan>(plan);
  EXPECT_TRUE(prepare_cpu_threads(shared, {}));
  const auto e = prepare_cpu_threads(shared, dynamic(Dispatch::kMixed, 1));
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().code, ErrorCode::kMismatch);
}

TEST(Dynamic, ADeadlockIsProvedAndNamed) {
  for (const Dispatch dispatch : kAllDispatch) {
    Chain chain(3, 6);
    CpuThreadsOptions options = dynamic(dispatch, 2);
    options.timeout = std::chrono::milliseconds(60000);
    options.lose_signals_of = 7;  // add1's second row
    const auto e = prepare_dynamic(plan_of(chain, 4, EventMode::kExact), options);
    chain.bind(*e);
    for (int run = 0; run < 2; ++run) {
      const auto start = std::chrono::steady_clock::now();
      const auto result = e->run();
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code, ErrorCode::kDeadlock);
      EXPECT_THAT(result.error().message, HasSubstr("task 13 of add2 waits for event"));
      EXPECT_THAT(result.error().details, HasSubstr("task 7 (add1 tile 1) never signalled because it ran to its end"));
    }
  }
}

TEST(Dynamic, ACycleOfEventsIsProved) {
  Chain chain(2, 2);
  KernelPlan plan = plan_of(chain, 2, EventMode::kExact);
  // add0's first row waits for what add1's first row signals to add0 ... through a new event.
  const auto cycle = static_cast<uint32_t>(plan.events.size());
  plan.events.push_back({1, kInvalidId, 0});
  for (abi::Instruction& i : plan.instructions) {
    if (i.task_id == 0) {
      i.waits[0] = {cycle, 1};
      i.counts = abi::make_counts(1, abi::num_signals(i), abi::num_payload(i));
    }
    if (i.task_id == 2) {
      const uint32_t n = abi::num_signals(i);
      i.signals[n] = abi::make_signal(cycle, 1, 0);
      i.counts = abi::make_counts(abi::num_waits(i), n + 1, abi::num_payload(i));
    }
  }
  for (const Dispatch dispatch : kAllDispatch) {
    const auto shared = std::make_shared<const KernelPlan>(plan);
    const auto refused = prepare_cpu_threads(shared, dynamic(dispatch, 1));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kDeadlock);
    // What stands behind the proof sees it too.
    const auto e = std::move(prepare_unproved(shared, dynamic(dispatch, 1)).value());
    chain.bind(*e);
    const auto result = e->run();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kDeadlock);
    EXPECT_THAT(result.error().details, HasSubstr("the waits form a circle")) << to_string(dispatch);
  }
}

TEST(Dynamic, BadOptionsAreNamed) {
  const auto message = [](const CpuThreadsOptions& options) {
    const auto e = prepare_cpu_threads(std::make_shared<const KernelPlan>(testing::packed_chain(1, 3, 2)), options);
    return e ? std::string("accepted") : e.error().message;
  };
  EXPECT_THAT(message(dynamic(Dispatch::kMixed, 1, 12)), HasSubstr("queues of 12 entries"));
  EXPECT_THAT(message(dynamic(Dispatch::kMixed, 1, 1)), HasSubstr("queues of 1 entries"));
  EXPECT_THAT(message(dynamic(Dispatch::kMixed, 3)), HasSubstr("3 schedulers for 2 workers"));
  EXPECT_EQ(parse_dispatch("ahead").value(), Dispatch::kAhead);
  EXPECT_THAT(parse_dispatch("late").error().message, HasSubstr("just-in-time"));
  EXPECT_THAT(parse_schedule("random").error().message, HasSubstr("dynamic"));
}

TEST(DispatchTable, OrderAndMilestones) {
  const KernelPlan plan = [] {
    Chain chain(2, 10);
    return plan_of(chain, 2, EventMode::kWhole);
  }();
  const DispatchTable jit(plan, Dispatch::kJustInTime, 1);
  ASSERT_EQ(jit.milestones.size(), 1U);
  EXPECT_EQ(jit.milestones[0].threshold, 10U);
  EXPECT_EQ(jit.consumers_of(jit.milestones[0]).size(), 10U);
  EXPECT_GE(jit.milestones[0].num_consumers, DispatchTable::kBroadcastConsumers);
  EXPECT_EQ(jit.ahead[0].size() + jit.ahead[1].size(), 10U) << "tasks without waits";
  const DispatchTable ahead(plan, Dispatch::kAhead, 1);
  EXPECT_TRUE(ahead.milestones.empty());
  EXPECT_EQ(ahead.ahead[0].size() + ahead.ahead[1].size(), 20U);
  for (uint32_t t = 0; t < 20; ++t) EXPECT_EQ(ahead.order[t], t);
}

TEST(Rings, AFullRingRefusesAndKeepsWhatItHolds) {
  Ring<uint32_t> ring(4);
  for (uint32_t round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(ring.try_push(10 * round + i));
    EXPECT_FALSE(ring.try_push(99));
    EXPECT_EQ(ring.size_hint(), 4U);
    for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(ring.try_pop(), 10 * round + i);
    EXPECT_EQ(ring.try_pop(), std::nullopt);
  }
}

TEST(Rings, ABroadcastReachesEveryReaderOnce) {
  BroadcastRing<uint32_t> ring(2, 3);
  EXPECT_TRUE(ring.try_push(7));
  EXPECT_TRUE(ring.try_push(8));
  EXPECT_FALSE(ring.try_push(9));
  EXPECT_EQ(ring.try_read(0), 7U);
  EXPECT_EQ(ring.try_read(1), 7U);
  EXPECT_FALSE(ring.try_push(9)) << "reader 2 has yet to read";
  EXPECT_EQ(ring.try_read(2), 7U);
  EXPECT_TRUE(ring.try_push(9));
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(ring.try_read(r), 8U);
    EXPECT_EQ(ring.try_read(r), 9U);
    EXPECT_EQ(ring.try_read(r), std::nullopt);
  }
}

TEST(Rings, ThreadsLoseAndDuplicateNothing) {
  constexpr uint32_t kWriters = 3;
  constexpr uint32_t kItems = 2000;
  Ring<uint32_t> ring(8);
  BroadcastRing<uint32_t> broadcast(8, 2);
  std::vector<std::vector<uint32_t>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (uint32_t w = 0; w < kWriters; ++w)
      threads.emplace_back([&, w] {
        for (uint32_t i = 0; i < kItems; ++i) {
          while (!ring.try_push(w * kItems + i)) std::this_thread::yield();
          while (!broadcast.try_push(w * kItems + i)) std::this_thread::yield();
        }
      });
    std::atomic<uint32_t> popped{0};
    for (uint32_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        while (popped.load() < kWriters * kItems) {
          if (const auto item = ring.try_pop()) {
            seen[r].push_back(*item);
            ++popped;
          } else {
            std::this_thread::yield();
          }
        }
      });
      threads.emplace_back([&, r] {
        while (seen[2 + r].size() < size_t{kWriters} * kItems) {
          if (const auto item = broadcast.try_read(r))
            seen[2 + r].push_back(*item);
          else
            std::this_thread::yield();
        }
      });
    }
    threads.clear();
  }
  std::set<uint32_t> taken(seen[0].begin(), seen[0].end());
  taken.insert(seen[1].begin(), seen[1].end());
  EXPECT_EQ(taken.size(), size_t{kWriters} * kItems);
  EXPECT_EQ(seen[0].size() + seen[1].size(), taken.size());
  EXPECT_EQ(seen[2], seen[3]) << "all readers see one order";
  EXPECT_EQ(std::set<uint32_t>(seen[2].begin(), seen[2].end()).size(), size_t{kWriters} * kItems);
}

}  // namespace
}  // namespace megartp
