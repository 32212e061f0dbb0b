// What is asked of the driver, in which order, with which bytes; on a driver that only pretends.
#include "backends/cuda_mega/mega_executable.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_common/host_executable.h"
#include "support/mega_plans.h"

namespace megartp::cuda_mega {
namespace {

using megartp::test::FakeDriver;
using test::layer_plan;
using test::make_executable;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

abi::MegaParams params_of(const std::string& blob) {
  abi::MegaParams params;
  EXPECT_EQ(blob.size(), sizeof(params));
  std::memcpy(&params, blob.data(), sizeof(params));
  return params;
}

class MegaTest : public testing::Test {
 protected:
  void make(const MegaRunOptions& options = {}) {
    plan_ = std::make_shared<const KernelPlan>(layer_plan(5, 300, 7));
    auto made = make_executable(fake_, plan_, options);
    ASSERT_TRUE(made) << made.error().to_string();
    exec_ = std::move(*made);
  }
  void bind_all() {
    for (const cuda::TensorUse& use : exec_->tensors().uses()) {
      const cuda::DeviceTensor* t = exec_->tensors().find(use.tensor.name);
      if (!t->is_external || !t->is_used()) continue;
      const std::vector<std::byte> bytes(t->num_bytes, std::byte{1});
      ASSERT_TRUE(exec_->upload(use.tensor.name, bytes)) << use.tensor.name;
    }
  }
  // What the kernel would leave of a run that gave up: `event` never comes to `worker`.
  void give_up(uint32_t worker, uint32_t slot, uint32_t wait, uint64_t epoch) {
    const abi::MegaParams& p = exec_->params();
    auto* records = static_cast<abi::FaultRecord*>(p.faults);
    for (uint32_t w = 0; w < plan_->num_workers; ++w) p.epochs[w * abi::kMegaCounterStride] = epoch;
    p.epochs[worker * abi::kMegaCounterStride] = epoch - 1;
    abi::FaultRecord r = abi::make_fault_record();
    r.kind = abi::kFaultDeadline;
    r.role = abi::kFaultRoleActivationLoader;
    r.worker = worker;
    r.slot = slot;
    r.phase = abi::kFaultPhaseWaiting;
    r.wait_idx = wait;
    r.epoch = epoch;
    records[worker] = r;
    *p.stop = 1;
    p.counters[0] = 77;
  }
  FakeDriver fake_;
  std::shared_ptr<const KernelPlan> plan_;
  std::unique_ptr<MegaExecutable> exec_;
};

TEST_F(MegaTest, OneCooperativeNodeWithAllParameters) {
  make();
  EXPECT_THAT(exec_->prepare().error().message, HasSubstr("is not bound"));
  bind_all();
  const Status prepared = exec_->prepare();
  ASSERT_TRUE(prepared) << prepared.error().to_string();
  const auto& nodes = fake_.last_graph->nodes;
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_THAT(nodes[0]->params.grid, ElementsAre(7, 1, 1));
  EXPECT_THAT(nodes[0]->params.block, ElementsAre(abi::kMegaThreads, 1, 1));
  EXPECT_EQ(nodes[0]->params.dynamic_smem_bytes, abi::kMegaSmemBytes);
  EXPECT_TRUE(nodes[0]->is_cooperative);
  const abi::MegaParams p = params_of(nodes[0]->blob);
  EXPECT_EQ(p.depth, plan_->queue_depth);
  EXPECT_EQ(p.num_workers, 7U);
  EXPECT_EQ(p.deadline_ns, 2000000000U);
  EXPECT_EQ(p.lose_signals_of, abi::kNoTask);
  EXPECT_EQ(p.lose_results_of, abi::kNoTask);
  EXPECT_EQ(p.trace, nullptr);
  for (uint32_t row = 0; row < plan_->operand_rows.size(); ++row) {
    for (uint32_t slot = 0; slot < abi::kOperandSlots; ++slot) {
      const uint32_t id = plan_->operand_rows[row].tensors[slot];
      const uint64_t address = p.operands[row][slot];
      if (id == kInvalidId) {
        EXPECT_EQ(address, 0U);
        continue;
      }
      const std::string& name = plan_->tensors[id].name;
      EXPECT_TRUE(address == exec_->address(name) || address == exec_->packed_address(name)) << name;
      EXPECT_NE(address, 0U) << name;
    }
  }
  for (uint32_t i = 0; i < plan_->specs.size(); ++i)
    for (uint32_t w = 0; w < plan_->specs[i].words.size(); ++w) EXPECT_EQ(p.specs[i][w], plan_->specs[i].words[w]);
  EXPECT_EQ(p.row_maps[31][0], abi::kMegaNoMap);
  const auto* records = p.records;
  for (size_t i = 0; i < plan_->instructions.size(); ++i)
    EXPECT_EQ(std::memcmp(&records[i].instruction, &plan_->instructions[i], 128), 0);
  EXPECT_EQ(*p.stop, 0U);
  EXPECT_EQ(p.counters[3], 0U);
}

TEST_F(MegaTest, ARunIsOneLaunch) {
  make();
  bind_all();
  ASSERT_TRUE(exec_->prepare());
  fake_.calls.clear();
  ASSERT_TRUE(exec_->run(nullptr));
  EXPECT_THAT(fake_.calls, ElementsAre("cuCtxPushCurrent", "cuGraphLaunch", "cuCtxPopCurrent"));
  EXPECT_TRUE(exec_->finish());
  EXPECT_EQ(exec_->fault(), nullptr);
}

TEST_F(MegaTest, NewAddressesChangeParametersOnly) {
  make();
  bind_all();
  ASSERT_TRUE(exec_->run(nullptr));
  const cuda::DeviceTensor* x = exec_->tensors().find("x");
  const auto other = cuda::DeviceBuffer::allocate(fake_.api(), x->num_bytes).value();
  const abi::MegaParams before = params_of(fake_.last_graph->nodes[0]->blob);
  ASSERT_TRUE(exec_->bind("x", other.get(), x->num_bytes));
  fake_.calls.clear();
  ASSERT_TRUE(exec_->run(nullptr));
  EXPECT_EQ(fake_.count("cuGraphExecKernelNodeSetParams"), 1U);
  EXPECT_EQ(fake_.count("cuGraphInstantiateWithFlags"), 0U);
  EXPECT_EQ(fake_.count("cuMemAlloc"), 0U);
  EXPECT_EQ(fake_.count("cuMemcpyHtoD"), 0U) << "records stay";
  const abi::MegaParams after = params_of(fake_.launches.back()->blobs.at(fake_.last_graph->nodes[0].get()));
  EXPECT_EQ(after.records, before.records);
  uint32_t changed = 0;
  for (uint32_t row = 0; row < abi::kMegaMaxRows; ++row)
    for (uint32_t slot = 0; slot < abi::kOperandSlots; ++slot)
      if (after.operands[row][slot] != before.operands[row][slot]) {
        ++changed;
        EXPECT_EQ(after.operands[row][slot], other.get());
      }
  EXPECT_EQ(changed, 1U);
  ASSERT_TRUE(exec_->bind("x", other.get(), x->num_bytes));
  fake_.calls.clear();
  ASSERT_TRUE(exec_->run(nullptr));
  EXPECT_EQ(fake_.count("cuGraphExecKernelNodeSetParams"), 0U) << "the same address again";
}

TEST_F(MegaTest, OrdinaryLaunchAndTrace) {
  MegaRunOptions options;
  options.is_cooperative = false;
  options.with_trace = true;
  options.deadline = std::chrono::milliseconds(30);
  make(options);
  bind_all();
  ASSERT_TRUE(exec_->prepare());
  EXPECT_FALSE(fake_.last_graph->nodes[0]->is_cooperative);
  EXPECT_EQ(exec_->params().deadline_ns, 30000000U);
  const auto trace = exec_->trace();
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->size(), plan_->instructions.size());
  EXPECT_EQ((*trace)[0].done, 0U);
}

TEST_F(MegaTest, MoreWorkersThanAreResidentAreRefused) {
  const auto plan = std::make_shared<const KernelPlan>(layer_plan(5, 300, 133));
  const auto made = make_executable(fake_, plan);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kOutOfResources);
  EXPECT_THAT(made.error().message, HasSubstr("133 workers, but only 132 CTAs"));
  fake_.ctas_per_sm = 0;
  EXPECT_THAT(make_executable(fake_, plan).error().message, HasSubstr("only 0 CTAs"));
  fake_.ctas_per_sm = 1;
  for (const uint32_t workers : {1U, 2U, 131U, 132U})
    EXPECT_TRUE(make_executable(fake_, std::make_shared<const KernelPlan>(layer_plan(5, 300, workers)))) << workers;
}

TEST_F(MegaTest, UnprovedPlansAreRefused) {
  KernelPlan plan = layer_plan(5, 300, 3);
  for (abi::Instruction& i : plan.instructions)
    if (abi::num_waits(i) == 1 && i.waits[0].threshold > 1) i.waits[0].threshold = 1;
  const auto made = make_executable(fake_, std::make_shared<const KernelPlan>(std::move(plan)));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("plan refused"));
}

TEST_F(MegaTest, AFaultIsReportedAndTheNextRunStartsAfresh) {
  MegaRunOptions options;
  options.lose_signals_of = 0;
  make(options);
  EXPECT_EQ(exec_->params().deadline_ns, 1000000000U);
  bind_all();
  ASSERT_TRUE(exec_->run(nullptr));
  // Somebody who waits for task 0.
  const abi::Instruction& first = *std::ranges::find(plan_->instructions, 0U, &abi::Instruction::task_id);
  ASSERT_GT(abi::num_signals(first), 0U);
  const uint32_t event = first.signals[0].event;
  for (uint32_t w = 0; w < plan_->num_workers; ++w)
    for (uint32_t s = 0; s < plan_->queue_depth; ++s) {
      const abi::Instruction& i = plan_->instruction(w, s);
      for (uint32_t k = 0; k < abi::num_waits(i); ++k)
        if (i.waits[k].event == event) give_up(w, s, k, 1);
    }
  const Status finished = exec_->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kDeadlock);
  EXPECT_THAT(finished.error().message, HasSubstr("deadlock: no progress for 1000 ms"));
  EXPECT_THAT(finished.error().message, HasSubstr("task 0 ("));
  ASSERT_NE(exec_->fault(), nullptr);
  const auto parsed = parse_fault_dump(serialize_fault_dump(*exec_->fault()));
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(parsed->records.size(), plan_->num_workers);
  const abi::MegaParams& p = exec_->params();
  EXPECT_EQ(*p.stop, 0U);
  EXPECT_EQ(p.counters[0], 0U);
  for (uint32_t w = 0; w < plan_->num_workers; ++w) {
    EXPECT_EQ(p.epochs[w * abi::kMegaCounterStride], 0U);
    EXPECT_EQ(static_cast<abi::FaultRecord*>(p.faults)[w].kind, 0U);
  }
  ASSERT_TRUE(exec_->run(nullptr));
  EXPECT_TRUE(exec_->finish());
  EXPECT_EQ(exec_->fault(), nullptr);
}

TEST_F(MegaTest, RecordsFromTheDeviceAreNotTrusted) {
  make();
  bind_all();
  ASSERT_TRUE(exec_->run(nullptr));
  auto* records = static_cast<abi::FaultRecord*>(exec_->params().faults);
  for (uint32_t w = 0; w < plan_->num_workers; ++w) std::memset(&records[w], static_cast<int>(0x11 * w), 128);
  records[1] = abi::make_fault_record();
  records[1].kind = abi::kFaultDeadline;
  records[1].phase = abi::kFaultPhaseWaiting;
  records[1].wait_idx = 9;
  records[1].slot = 0;
  records[1].event = 0xfffffff0U;
  *exec_->params().stop = 1;
  const Status finished = exec_->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kTimeout);
  const auto parsed = parse_fault_dump(serialize_fault_dump(*exec_->fault()));
  EXPECT_TRUE(parsed) << parsed.error().to_string();
}

TEST_F(MegaTest, EveryFailingCallIsReportedAndNothingIsLost) {
  const auto plan = std::make_shared<const KernelPlan>(layer_plan(1, 70, 2));
  const auto whole_life = [&]() -> Status {
    const auto exec = MEGARTP_TRY(make_executable(fake_, plan));
    for (const cuda::TensorUse& use : exec->tensors().uses()) {
      const cuda::DeviceTensor* t = exec->tensors().find(use.tensor.name);
      if (!t->is_external || !t->is_used()) continue;
      MEGARTP_TRY(exec->upload(use.tensor.name, std::vector<std::byte>(t->num_bytes)));
    }
    MEGARTP_TRY(exec->run(nullptr));
    return exec->finish();
  };
  ASSERT_TRUE(whole_life());
  const auto num_calls = static_cast<int64_t>(fake_.calls.size());
  int num_failed = 0;
  for (int64_t n = 0; n < num_calls; ++n) {
    fake_.calls.clear();
    fake_.fail_at = n;
    const Status result = whole_life();
    EXPECT_EQ(fake_.num_alive(), 0U) << "call " << n;
    EXPECT_EQ(fake_.pushed, 0);
    if (fake_.fail_at >= 0) break;  // all calls that can fail are through
    ++num_failed;
    ASSERT_FALSE(result) << "call " << n << " failed unseen: " << fake_.calls[static_cast<size_t>(n)];
  }
  EXPECT_GT(num_failed, 40);
}

TEST_F(MegaTest, BehindTheHostInterface) {
  make();
  const auto plan = plan_;
  auto host = make_host_executable(std::move(exec_)).value();
  EXPECT_THAT(host->run().error().message, HasSubstr("is not bound"));
  std::vector<std::vector<std::byte>> memory;
  for (const PlanTensor& t : plan->tensors) {
    if (t.arena_offset != kExternal) continue;
    memory.emplace_back(t.num_bytes);
    ASSERT_TRUE(host->bind(t.name, memory.back().data(), t.num_bytes)) << t.name;
  }
  host->poison();
  fake_.calls.clear();
  const auto stats = host->run();
  ASSERT_TRUE(stats) << stats.error().to_string();
  EXPECT_EQ(fake_.count("cuGraphLaunch"), 1U);
  EXPECT_EQ(host->fault(), nullptr);
  host.reset();
  EXPECT_EQ(fake_.num_alive(), 0U);
}

}  // namespace
}  // namespace megartp::cuda_mega
