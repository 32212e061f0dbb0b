// attention-pre in the exploring mode: every order of a small layer gives the sequential bits, and a wait that is taken
// away does not stay hidden.
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu_threads/explore.h"
#include "conformance/small_layer.h"

namespace megartp::test {
namespace {

struct Explored {
  ExploreReport report;
  glm52::TensorMap tensors;
};

Result<Explored> explore(const glm52::LayerRun& run, std::shared_ptr<const KernelPlan> plan, uint64_t max_executions) {
  auto explorer = MEGARTP_TRY(prepare_explorer(std::move(plan), {max_executions}));
  const Explorer& kept = *explorer;
  auto execution = MEGARTP_TRY(glm52::LayerExecution::create(run, std::move(explorer)));
  MEGARTP_TRY(execution.run());
  return Explored{kept.report(), execution.collect()};
}

TEST(ExploreLayer, FinalizerTasksLeaveOneOutcome) {
  const auto run = small_layer({{1, 70}});
  const auto plan = plan_layer(*run, {FinalizerMode::kTasks}, Packer::kRoundRobin, 3);
  ASSERT_TRUE(plan);
  const auto explored = explore(*run, *plan, 100);
  ASSERT_TRUE(explored) << explored.error().to_string();
  EXPECT_TRUE(explored->report.is_complete);
  EXPECT_EQ(explored->report.num_executions, 1U);
  EXPECT_TRUE(explored->report.is_clean()) << describe(explored->report);
  EXPECT_THAT(explored->report.races, testing::IsEmpty());
  // What it leaves behind is what threads compute.
  auto execution = glm52::LayerExecution::create(*run, prepare_cpu_threads(*plan).value());
  ASSERT_TRUE(execution && execution->run());
  expect_same(explored->tensors, execution->collect(), "explorer against threads");
}

TEST(ExploreLayer, FusedFinalizersLeaveTheSameBitsWhoeverComesLast) {
  const auto run = small_layer({{1, 70}});
  const auto plan = plan_layer(*run, {FinalizerMode::kFused}, Packer::kRoundRobin, 2);
  ASSERT_TRUE(plan);
  const auto explored = explore(*run, *plan, 24);
  ASSERT_TRUE(explored) << explored.error().to_string();
  EXPECT_GT(explored->report.num_executions, 1U) << "either worker may come last";
  EXPECT_TRUE(explored->report.is_clean()) << describe(explored->report);
  EXPECT_THAT(explored->report.races, testing::IsEmpty());
}

TEST(ExploreLayer, AMissingWaitShows) {
  const auto run = small_layer({{1, 70}});
  const auto plan = plan_layer(*run, {FinalizerMode::kTasks}, Packer::kRoundRobin, 3);
  ASSERT_TRUE(plan);
  KernelPlan mutated = **plan;
  // The last task that waits at all: E1's, on the way to the logits.
  auto* victim = &mutated.instructions.front();
  for (abi::Instruction& i : mutated.instructions)
    if (i.opcode != abi::kOpcodeNoOp && abi::num_waits(i) != 0 && i.task_id >= victim->task_id) victim = &i;
  victim->counts = abi::make_counts(0, abi::num_signals(*victim), abi::num_payload(*victim));
  std::fill(std::begin(victim->waits), std::end(victim->waits), abi::Wait{});
  const auto explored = explore(*run, std::make_shared<const KernelPlan>(mutated), 20);
  ASSERT_TRUE(explored) << explored.error().to_string();
  EXPECT_GT(explored->report.num_different, 0U) << describe(explored->report);
  EXPECT_FALSE(explored->report.races.empty());
}

}  // namespace
}  // namespace megartp::test
