// Fault dumps: both forms round trip, damage is named, and explanations find the root.
#include "plan/fault_dump.h"

#include <cstring>
#include <filesystem>

#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::packed_chain;

// `add0` has tasks 0 .. 3, `add1` tasks 4 .. 7; round robin over two workers: worker w runs w, w + 2, w + 4, w + 6.
KernelPlan plan() { return packed_chain(2, 4, 2); }

abi::FaultRecord waiting(const KernelPlan& p, uint32_t worker, uint32_t slot, uint64_t actual) {
  const abi::Instruction& i = p.instruction(worker, slot);
  abi::FaultRecord r = abi::make_fault_record();
  r.kind = abi::kFaultDeadlock;
  r.phase = abi::kFaultPhaseWaiting;
  r.worker = worker;
  r.slot = slot;
  r.task_id = i.task_id;
  r.opcode = i.opcode;
  r.operand_row = i.operand_row;
  r.wait_idx = 0;
  r.event = i.waits[0].event;
  r.expected = i.waits[0].threshold;
  r.actual = actual;
  r.epoch = 1;
  return r;
}

abi::FaultRecord done(uint32_t worker) {
  abi::FaultRecord r = abi::make_fault_record();
  r.worker = worker;
  r.phase = abi::kFaultPhaseDone;
  return r;
}

FaultDump lost_signal_dump(const KernelPlan& p) {
  FaultDump dump = make_fault_dump(p);
  dump.records = {done(0), waiting(p, 1, 2, 0)};
  dump.records[1].missing_task = 1;
  dump.records[1].missing_worker = 1;
  dump.records[1].missing_slot = 0;
  dump.records[1].missing_state = abi::kFaultMissingFinished;
  return dump;
}

std::string why_not(std::string_view bytes) {
  const auto dump = parse_fault_dump(bytes);
  return dump ? "accepted" : dump.error().to_string();
}

TEST(FaultDump, BothFormsRoundTrip) {
  const FaultDump dump = lost_signal_dump(plan());
  const std::string bytes = serialize_fault_dump(dump);
  EXPECT_EQ(bytes.size(), sizeof(abi::FaultDumpHeader) + 2 * sizeof(abi::FaultRecord));
  const auto binary = parse_fault_dump(bytes);
  ASSERT_TRUE(binary) << binary.error().to_string();
  EXPECT_EQ(serialize_fault_dump(*binary), bytes);
  const auto json = parse_fault_dump(fault_dump_to_json(dump));
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ(serialize_fault_dump(*json), bytes);
}

TEST(FaultDump, FilesOfBothForms) {
  const FaultDump dump = lost_signal_dump(plan());
  for (const char* extension : {"dump", "json"}) {
    const std::string path =
        fmt::format("{}/megartp_fault_{}.{}", std::filesystem::temp_directory_path().string(), getpid(), extension);
    ASSERT_TRUE(save_fault_dump(dump, path));
    const auto loaded = load_fault_dump(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    EXPECT_EQ(serialize_fault_dump(*loaded), serialize_fault_dump(dump));
  }
  EXPECT_EQ(load_fault_dump("/no/such/file").error().code, ErrorCode::kNotFound);
}

TEST(FaultDump, EveryDamagedByteIsNoticed) {
  const std::string bytes = serialize_fault_dump(lost_signal_dump(plan()));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_FALSE(parse_fault_dump(damaged)) << "byte " << i;
    EXPECT_FALSE(parse_fault_dump(std::string_view(bytes).substr(0, i))) << "first " << i << " bytes";
  }
  EXPECT_THAT(why_not(bytes + "x"), HasSubstr("353 bytes; 2 records make 352"));
}

TEST(FaultDump, WrongNumbersAreNamed) {
  const KernelPlan p = plan();
  const auto mutated = [&](auto change) {
    FaultDump dump = lost_signal_dump(p);
    change(dump);
    return why_not(serialize_fault_dump(dump));
  };
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[1].kind = 9; }), HasSubstr("record 1 has the unknown kind 9"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[0].role = 0; }), HasSubstr("unknown role 0"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[1].worker = 2; }), HasSubstr("record 1 names worker 2 of 2"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[1].missing_task = 8; }), HasSubstr("names task 8 of 8"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[1].event = 99; }), HasSubstr("names event 99"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[0].actual = 1; }), HasSubstr("does not wait"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records[1].reserved1[7] = 1; }), HasSubstr("reserved word of record 1"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.records.clear(); }), HasSubstr("no record"));
  EXPECT_THAT(mutated([](FaultDump& d) { d.num_tasks = 0; }), HasSubstr("without workers or tasks"));
  EXPECT_THAT(why_not("MRTPFALT"), HasSubstr("too few for a header"));
  EXPECT_THAT(why_not("plain text"), HasSubstr("neither"));
  EXPECT_THAT(why_not("{}"), HasSubstr("missing"));
  EXPECT_THAT(why_not("{\"fault_dump\": 1"), Not(HasSubstr("accepted")));
}

TEST(ExplainFault, ALostSignalNamesTheTaskThatLostIt) {
  const KernelPlan p = plan();
  const auto explained = explain_fault(lost_signal_dump(p), &p);
  ASSERT_TRUE(explained) << explained.error().to_string();
  EXPECT_THAT(explained->sentence, HasSubstr("worker 1 waits in slot 2 (add1, task 5) for event 1 of add0: 0 of 1 "
                                             "signals came; task 1 (add0 tile 1, worker 1 slot 0) never signalled "
                                             "because it ran to its end and its signal was lost"));
  ASSERT_EQ(explained->lines.size(), 2U);
  EXPECT_EQ(explained->lines[0], "worker 0 has finished");
}

// A device does not know who is missing; under static queues the plan tells.
TEST(ExplainFault, ThePlanTellsWhoIsMissing) {
  const KernelPlan p = plan();
  FaultDump dump = make_fault_dump(p);
  dump.records = {done(0), waiting(p, 1, 2, 0)};
  EXPECT_THAT(explain_fault(dump, &p)->sentence, HasSubstr("task 1 (add0 tile 1, worker 1 slot 0) never signalled "
                                                           "because it ran to its end"));
  EXPECT_THAT(explain_fault(dump, nullptr)->sentence, HasSubstr("who has yet to signal is not recorded"));
}

TEST(ExplainFault, AChainIsFollowedToItsRoot) {
  KernelPlan p = plan();
  // Worker 1 waits for task 0, which stands behind worker 0's own wait for task 1, which lost its signal.
  abi::Instruction& first = p.instructions[0];
  first.waits[0] = {1, 1};
  first.counts = abi::make_counts(1, abi::num_signals(first), abi::num_payload(first));
  p.instructions[size_t{p.queue_depth} + 2].waits[0] = {0, 1};
  FaultDump dump = make_fault_dump(p);
  dump.records = {waiting(p, 1, 2, 0), waiting(p, 0, 0, 0)};
  const std::string sentence = explain_fault(dump, &p)->sentence;
  EXPECT_THAT(sentence, HasSubstr("worker 0 waits in slot 0 (add0, task 0) for event 1 of add0"));
  EXPECT_THAT(sentence, HasSubstr("task 1 (add0 tile 1, worker 1 slot 0) never signalled"));
  EXPECT_THAT(sentence, HasSubstr("1 step away"));
}

TEST(ExplainFault, ACircleIsShown) {
  KernelPlan p = packed_chain(2, 2, 2);
  for (uint32_t w = 0; w < 2; ++w) std::swap(p.instructions[w * p.queue_depth], p.instructions[w * p.queue_depth + 1]);
  std::swap(p.instructions[0], p.instructions[p.queue_depth]);  // each waits for what stands behind the other
  FaultDump dump = make_fault_dump(p);
  dump.records = {waiting(p, 0, 0, 0), waiting(p, 1, 0, 0)};
  EXPECT_THAT(explain_fault(dump, &p)->sentence,
              HasSubstr("the waits form a circle: worker 0 -> worker 1 -> worker 0"));
}

TEST(ExplainFault, AnEventThatNobodySignalsAndAnotherPlan) {
  KernelPlan p = plan();
  p.events.push_back({1, 0, 0});
  p.instructions[size_t{p.queue_depth} + 2].waits[0] = {static_cast<uint32_t>(p.events.size() - 1), 1};
  FaultDump dump = make_fault_dump(p);
  dump.records = {done(0), waiting(p, 1, 2, 0)};
  EXPECT_THAT(explain_fault(dump, &p)->sentence, HasSubstr("no instruction signals it"));
  const KernelPlan other = packed_chain(2, 5, 2);
  EXPECT_THAT(explain_fault(dump, &other).error().message, HasSubstr("another plan"));
  KernelPlan same_size = p;
  same_size.graph_name = "other";
  EXPECT_THAT(explain_fault(dump, &same_size).error().message, HasSubstr("another plan"));
}

}  // namespace
}  // namespace megartp
