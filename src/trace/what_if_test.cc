#include "trace/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_test_support.h"
#include "trace/from_plan.h"
#include "trace/trace_test_support.h"

namespace megartp::trace {
namespace {

using ::testing::HasSubstr;

// A plan's simulated run: its replay must give it back, and a change must give what simulating the change gives.
Trace simulated(const TaskGraph& graph, Packer packer, uint32_t workers) {
  TargetDesc target = *find_target("cpu");
  const auto plan = pack(graph, target, {packer, workers});
  EXPECT_TRUE(plan);
  const std::vector<TaskCost> costs = task_costs(graph);
  SimCosts sim = sim_costs(target, workers);
  sim.chip_bytes_per_ns = 0;  // no shared rates: every tile takes its own time, wherever it runs
  const auto result = simulate(make_sim_program(*plan, costs), sim);
  EXPECT_TRUE(result) << result.error().to_string();
  auto trace = trace_of_simulation(*plan, costs, *result);
  EXPECT_TRUE(trace) << trace.error().to_string();
  return std::move(*trace);
}

TEST(WhatIf, ReplaysWhatWasRecorded) {
  const auto r = what_if(testing::two_lanes(), {});
  ASSERT_TRUE(r) << r.error().to_string();
  EXPECT_EQ(r->measured_ns, 300U);
  EXPECT_NEAR(static_cast<double>(r->replay_ns), 300, 12);  // lags are medians: 5 for the queue, 10 for the event
  EXPECT_EQ(r->changed_ns, r->replay_ns);
  EXPECT_DOUBLE_EQ(r->predicted_ns, 300);
}

TEST(WhatIf, AFasterOpCounts) {
  const Trace t = testing::two_lanes();
  WhatIf change;
  change.faster = {{"B0", 2}};  // "B0.gemm": task 3 on the path takes 90 instead of 180
  const auto r = what_if(t, change);
  ASSERT_TRUE(r) << r.error().to_string();
  EXPECT_EQ(r->replay_ns - r->changed_ns, 90U);
  change.faster = {{"B9", 2}};
  const auto unknown = what_if(t, change);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("no op 'B9'; it has A0, B0.gemm"));
}

TEST(WhatIf, AFreeEdgeLetsItsConsumersGo) {
  WhatIf change;
  change.free_edges = {{"A0", "B0"}};
  const auto r = what_if(testing::two_lanes(), change);
  ASSERT_TRUE(r) << r.error().to_string();
  // Both lanes start at 15 in the replay, the later of the two starts. A is done at 105, its signal arrives at 115;
  // without it task 3 goes on when task 2 on its lane has been over for 5, at 50.
  EXPECT_EQ(r->replay_ns - r->changed_ns, 65U);
}

TEST(WhatIf, PackingAnewIsWhatThePackerDoes) {
  const TaskGraph graph = megartp::testing::lowered_chain(6, 70);
  const Trace before = simulated(graph, Packer::kRoundRobin, 3);
  for (const Packer packer : kPackers)
    for (const uint32_t workers : {1U, 2U, 3U, 8U}) {
      WhatIf change;
      change.packer = packer;
      change.num_workers = workers;
      const auto r = what_if(before, change);
      ASSERT_TRUE(r) << r.error().to_string();
      const Trace after = simulated(graph, packer, workers);
      EXPECT_NEAR(static_cast<double>(r->changed_ns), static_cast<double>(after.meta.span_ns),
                  0.01 * static_cast<double>(after.meta.span_ns))
          << to_string(packer) << " " << workers;
    }
}

TEST(WhatIf, RefusesWhatItCannotKnow) {
  Trace lost = testing::two_lanes();
  lost.meta.num_lost = 1;
  EXPECT_FALSE(what_if(lost, {}));
  Trace kernels = testing::two_lanes();
  kernels.kernel_edges = {{0, 1, "full"}};
  WhatIf change;
  change.num_workers = 4;
  const auto r = what_if(kernels, change);
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message, HasSubstr("no packer"));
}

TEST(WhatIf, ReadsItsArguments) {
  EXPECT_EQ(parse_faster("B0.gemm=1.5")->first, "B0.gemm");
  EXPECT_DOUBLE_EQ(parse_faster("B0.gemm=1.5")->second, 1.5);
  for (const char* bad : {"", "B0", "=2", "B0=", "B0=x", "B0=0", "B0=-1", "B0=2x", "B0=nan", "B0=inf"})
    EXPECT_FALSE(parse_faster(bad)) << bad;
  EXPECT_EQ(parse_free_edge("A0->B0")->second, "B0");
  for (const char* bad : {"", "A0", "->B0", "A0->"}) EXPECT_FALSE(parse_free_edge(bad)) << bad;
}

}  // namespace
}  // namespace megartp::trace
