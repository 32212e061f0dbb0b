// Every rule of check_plan: one change to a good plan, one error.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_limits.h"
#include "plan/plan_structure.h"
#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;

KernelPlan good_plan() { return testing::packed_chain(3, 5, 4); }  // 15 tasks in 4 x 4 slots

struct Fault {
  const char* name;
  std::function<void(KernelPlan&)> apply;
  const char* message;
};

// The first instruction that waits.
abi::Instruction& waiter(KernelPlan& p) {
  for (abi::Instruction& i : p.instructions)
    if (abi::num_waits(i) > 0) return i;
  return p.instructions[0];
}
PlanTensor& activation(KernelPlan& p, int which) {
  for (PlanTensor& t : p.tensors)
    if (t.storage == Storage::kActivation && which-- == 0) return t;
  return p.tensors[0];
}

class CheckPlan : public ::testing::TestWithParam<Fault> {};

TEST_P(CheckPlan, RejectsTheFault) {
  KernelPlan plan = good_plan();
  ASSERT_TRUE(check_plan(plan)) << check_plan(plan).error().to_string();
  GetParam().apply(plan);
  const Status status = check_plan(plan);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kParse);
  EXPECT_THAT(status.error().to_string(), HasSubstr(GetParam().message));
}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list{
      {"NoWorkers", [](KernelPlan& p) { p.num_workers = 0; }, "0 workers"},
      {"HugeDepth", [](KernelPlan& p) { p.queue_depth = kMaxQueueDepth + 1; }, "queue depth"},
      {"DepthDiffers", [](KernelPlan& p) { p.queue_depth = 5; }, "16 instructions for 4 workers x 5"},
      {"MoreTasksThanSlots", [](KernelPlan& p) { p.num_tasks = 17; }, "17 tasks"},
      {"TaskMissing", [](KernelPlan& p) { p.num_tasks = 16; }, "task 15 is in no queue"},
      {"TaskIdOutside", [](KernelPlan& p) { p.num_tasks = 14; }, "task id 14 of 14"},
      {"TaskTwice", [](KernelPlan& p) { p.instructions[1].task_id = p.instructions[0].task_id; }, "appears twice"},
      {"NoOpWithWork", [](KernelPlan& p) { p.instructions.back().payload[0] = 1; }, "NoOp"},
      {"ReservedWord", [](KernelPlan& p) { p.instructions[0].reserved0 = 1; }, "not zero"},
      {"ReservedCount", [](KernelPlan& p) { p.instructions[0].counts |= 1U << 24; }, "impossible counts"},
      {"FiveWaits", [](KernelPlan& p) { p.instructions[0].counts = abi::make_counts(5, 1, 1); }, "impossible counts"},
      {"FiveSignals", [](KernelPlan& p) { p.instructions[0].counts = abi::make_counts(0, 5, 1); }, "impossible counts"},
      {"NinePayloadWords", [](KernelPlan& p) { p.instructions[0].counts = abi::make_counts(0, 1, 9); },
       "impossible counts"},
      {"UnusedWait", [](KernelPlan& p) { p.instructions[0].waits[3].threshold = 1; }, "not zero"},
      {"UnusedSignal", [](KernelPlan& p) { p.instructions[0].signals[3].event = 1; }, "not zero"},
      {"UnusedPayload", [](KernelPlan& p) { p.instructions[0].payload[7] = 1; }, "not zero"},
      {"OperandRowOutside", [](KernelPlan& p) { p.instructions[0].operand_row = 3; }, "operand row 3"},
      {"SpecOutside", [](KernelPlan& p) { p.instructions[0].spec_id = 1; }, "spec 1"},
      {"OpcodeOfNothing", [](KernelPlan& p) { p.instructions[0].opcode = 0x7fff; }, "opcode 0x7fff"},
      {"WaitEventOutside", [](KernelPlan& p) { waiter(p).waits[0].event = 1000; }, "waits for event 1000"},
      {"ThresholdAboveTotal", [](KernelPlan& p) { waiter(p).waits[0].threshold = 2; }, "waits for event"},
      {"ThresholdZero", [](KernelPlan& p) { waiter(p).waits[0].threshold = 0; }, "waits for event"},
      {"SignalEventOutside", [](KernelPlan& p) { p.instructions[0].signals[0].event = 1000; }, "signals event 1000"},
      {"IncrementZero", [](KernelPlan& p) { p.instructions[0].signals[0].increment_publication = 0; }, "increment 0"},
      {"IncrementTooLarge", [](KernelPlan& p) { p.instructions[0].signals[0].increment_publication = 2; },
       "add up to 2"},
      {"OtherPublication", [](KernelPlan& p) { p.instructions[0].signals[0].increment_publication |= 1U << 24; },
       "another stage"},
      {"OtherProducer", [](KernelPlan& p) { p.events[0].producer_row = 1; }, "another stage"},
      {"ProducerRowOutside", [](KernelPlan& p) { p.events[0].producer_row = 3; }, "producer row 3"},
      {"TotalZero", [](KernelPlan& p) { p.events[0].total = 0; }, "total 0"},
      {"TotalTooLarge", [](KernelPlan& p) { p.events[0].total = 7; }, "total is 7"},
      {"JoinOutside", [](KernelPlan& p) { p.instructions[0].join_counter = 0; }, "joins counter 0"},
      {"JoinCountAlone", [](KernelPlan& p) { p.instructions[0].join_count = 1; }, "join count"},
      {"JoinWithoutArrivals", [](KernelPlan& p) { p.join_counts.push_back(2); }, "0 arrivals"},
      {"JoinOfNone", [](KernelPlan& p) { p.join_counts.push_back(0); }, "expects no arrival"},
      {"PayloadOutside", [](KernelPlan& p) { p.instructions[0].payload[0] = 5; }, "row 5 does not fit"},
      {"SpecWords", [](KernelPlan& p) { p.specs[0].words[0] = 65; }, "does not fit"},
      {"SpecOpcode", [](KernelPlan& p) { p.specs.push_back({0x7fff, {}}); }, "spec 1 has the unknown opcode"},
      {"RowOpcode", [](KernelPlan& p) { p.operand_rows[0].opcode = 0x7fff; }, "unknown opcode"},
      {"RowTooShort", [](KernelPlan& p) { p.operand_rows[0].tensors.pop_back(); }, "15 slots"},
      {"RowTensorOutside", [](KernelPlan& p) { p.operand_rows[0].tensors[4] = 99; }, "names tensor 99"},
      {"OperandMissing", [](KernelPlan& p) { p.operand_rows[0].tensors[1] = kInvalidId; }, "does not fit"},
      {"TensorDtype", [](KernelPlan& p) { p.tensors[0].dtype = static_cast<DType>(99); }, "unknown dtype"},
      {"TensorDims", [](KernelPlan& p) { p.tensors[0].dims = {1 << 30, 1 << 30, 1 << 30}; }, "impossible dims"},
      {"TensorDimZero", [](KernelPlan& p) { p.tensors[0].dims[0] = 0; }, "impossible dims"},
      {"TensorScalar", [](KernelPlan& p) { p.tensors[0].dims.clear(); }, "0 dimensions"},
      {"TensorBytes", [](KernelPlan& p) { --p.tensors[0].num_bytes; }, "its dims make"},
      {"TensorNameTwice", [](KernelPlan& p) { p.tensors[1].name = p.tensors[0].name; }, "used twice"},
      {"ArgumentInWorkspace", [](KernelPlan& p) { p.tensors[0].arena_offset = 0; }, "must not lie"},
      {"ActivationOutside", [](KernelPlan& p) { activation(p, 0).arena_offset = kExternal; }, "must lie"},
      {"ArenaEnd", [](KernelPlan& p) { p.workspace_bytes = 256; }, "leaves the workspace"},
      {"ArenaAlignment", [](KernelPlan& p) { activation(p, 0).arena_offset = 128; }, "alignment"},
      {"ArenaHuge", [](KernelPlan& p) { p.workspace_bytes = kMaxWorkspaceBytes + 1; }, "workspace of"},
  };
  return list;
}

INSTANTIATE_TEST_SUITE_P(Faults, CheckPlan, ::testing::ValuesIn(faults()),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST(CheckPlanLimits, LeavesSharedMemoryToTheProver) {
  KernelPlan plan = good_plan();
  activation(plan, 1).arena_offset = activation(plan, 0).arena_offset;
  EXPECT_TRUE(check_plan(plan));
}

TEST(CheckPlanLimits, StructureLeavesSumsToTheProver) {
  KernelPlan plan = good_plan();
  waiter(plan).waits[0].threshold = 2;
  EXPECT_FALSE(check_plan(plan));
  EXPECT_TRUE(check_plan_structure(plan));
  plan.instructions[0].opcode = 0x7fff;
  EXPECT_FALSE(check_plan_structure(plan));
}

TEST(CheckPlanLimits, AcceptsAPlanThatCannotProgress) {
  // Two queues, each waiting for what the other would send later: structurally sound, ordering is proved elsewhere.
  KernelPlan plan = testing::packed_chain(2, 2, 2);
  ASSERT_EQ(plan.queue_depth, 2U);
  std::swap(plan.instructions[0], plan.instructions[1]);
  std::swap(plan.instructions[2], plan.instructions[3]);
  EXPECT_TRUE(check_plan(plan));
}

}  // namespace
}  // namespace megartp
