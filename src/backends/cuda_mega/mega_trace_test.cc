#include "backends/cuda_mega/mega_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_common/global_timer.h"

namespace megartp::cuda_mega {
namespace {

using testing::HasSubstr;

// Worker 0: tasks 0 and 2; worker 1: task 1 and padding.
KernelPlan plan_of_three_tasks() {
  KernelPlan plan;
  plan.num_workers = 2;
  plan.queue_depth = 2;
  plan.num_tasks = 3;
  plan.instructions.resize(4);
  for (const auto& [at, id] : {std::pair(0, 0U), {1, 2U}, {2, 1U}}) {
    plan.instructions[static_cast<size_t>(at)].opcode = 0x20;
    plan.instructions[static_cast<size_t>(at)].task_id = id;
  }
  return plan;
}

abi::MegaTraceRecord record(uint64_t visible, uint64_t ready, uint64_t done, uint64_t weights_begin = 0,
                            uint64_t weights_end = 0, uint64_t computed = 0) {
  return {visible, ready, done, weights_begin, weights_end, computed};
}

TEST(MegaTrace, HasARecordForEveryInstruction) {
  const auto raw = raw_trace(plan_of_three_tasks(),
                             std::vector<abi::MegaTraceRecord>{
                                 record(1000, 1064, 2024), record(2056, 1160, 3080), record(1032, 1032, 1512), {}});
  ASSERT_TRUE(raw) << raw.error().to_string();
  EXPECT_EQ(raw->clock_domain, "%globaltimer");
  EXPECT_EQ(raw->resolution_ns, 32);
  EXPECT_EQ(raw->begin, 1000U);
  EXPECT_EQ(raw->end, 3080U);
  EXPECT_EQ(raw->num_lost, 0U);
  ASSERT_EQ(raw->tasks.size(), 3U);
  EXPECT_EQ(raw->tasks[0].task_id, 0U);
  EXPECT_EQ(raw->tasks[0].flags, abi::kTraceSent);
  EXPECT_EQ(raw->tasks[2].worker, 1U);
  EXPECT_EQ(raw->tasks[2].task_id, 1U);
  // The loader saw the events of task 2 while the consumers were at task 0.
  EXPECT_EQ(raw->tasks[1].visible, 1160U);
  EXPECT_EQ(raw->tasks[1].ready, 2056U);
}

TEST(MegaTrace, WeightsAreARoleWhereTheyAreRecorded) {
  const auto raw =
      raw_trace(plan_of_three_tasks(), std::vector<abi::MegaTraceRecord>{record(1000, 1064, 2024, 968, 1096),
                                                                         record(2056, 1160, 3080, 1128, 1096),
                                                                         record(1032, 1032, 1512, 0, 0),
                                                                         {}});
  ASSERT_TRUE(raw) << raw.error().to_string();
  ASSERT_EQ(raw->roles.size(), 1U) << "not what runs backwards, nor what was not recorded";
  EXPECT_EQ(raw->roles[0].slot, 0U);
  EXPECT_EQ(raw->roles[0].role, abi::kTraceRoleWeights);
  EXPECT_EQ(raw->begin, 968U) << "the loader came first";
}

TEST(MegaTrace, PublishingIsARoleBehindTheTask) {
  const auto raw = raw_trace(
      plan_of_three_tasks(),
      std::vector<abi::MegaTraceRecord>{
          record(1000, 1064, 2024, 0, 0, 1544), record(2056, 2088, 3080, 0, 0, 2048), record(1032, 1032, 1512), {}});
  ASSERT_TRUE(raw) << raw.error().to_string();
  EXPECT_EQ(raw->tasks[0].done, 1544U);
  EXPECT_EQ(raw->tasks[1].done, 2088U) << "no sooner than its inputs";
  EXPECT_EQ(raw->tasks[2].done, 1512U) << "not recorded";
  EXPECT_EQ(raw->end, 3080U);
  ASSERT_EQ(raw->roles.size(), 2U);
  EXPECT_EQ(raw->roles[0].role, abi::kTraceRoleStore);
  EXPECT_EQ(raw->roles[0].begin, 1544U);
  EXPECT_EQ(raw->roles[0].end, 2024U);
}

TEST(MegaTrace, CountsWhatIsMissing) {
  const auto raw = raw_trace(plan_of_three_tasks(),
                             std::vector<abi::MegaTraceRecord>{record(1000, 1064, 2024), {}, record(900, 0, 0), {}});
  ASSERT_TRUE(raw) << raw.error().to_string();
  EXPECT_EQ(raw->num_lost, 2U);
  EXPECT_EQ(raw->begin, 1000U);
}

TEST(MegaTrace, RefusesOtherCounts) {
  EXPECT_THAT(raw_trace(plan_of_three_tasks(), std::vector<abi::MegaTraceRecord>(3)).error().message,
              HasSubstr("3 trace records for 4 instructions"));
  EXPECT_THAT(raw_trace(plan_of_three_tasks(), std::vector<abi::MegaTraceRecord>(4)).error().message,
              HasSubstr("no trace records"));
}

TEST(GlobalTimer, StepIsTheSmallestDifference) {
  EXPECT_EQ(cuda::smallest_step_ns({}), 1U);
  EXPECT_EQ(cuda::smallest_step_ns({64, 64}), 1U);
  EXPECT_EQ(cuda::smallest_step_ns({1000, 64, 128, 160, 64}), 32U);
}

}  // namespace
}  // namespace megartp::cuda_mega
