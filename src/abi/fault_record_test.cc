// Layout of the fault record: offsets, traits and golden bytes. Device code fills the same bytes.
#include "abi/fault_record.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <gtest/gtest.h>

namespace megartp::abi {
namespace {

static_assert(std::endian::native == std::endian::little, "dumps are little-endian and copied as they are");
static_assert(std::is_standard_layout_v<FaultRecord> && std::is_trivially_copyable_v<FaultRecord>);
static_assert(std::is_standard_layout_v<FaultDumpHeader> && std::is_trivially_copyable_v<FaultDumpHeader>);
static_assert(std::has_unique_object_representations_v<FaultRecord>, "no padding");
static_assert(std::has_unique_object_representations_v<FaultDumpHeader>, "no padding");

static_assert(offsetof(FaultRecord, kind) == 0 && offsetof(FaultRecord, phase) == 28);
static_assert(offsetof(FaultRecord, wait_idx) == 32 && offsetof(FaultRecord, event) == 36);
static_assert(offsetof(FaultRecord, expected) == 40 && offsetof(FaultRecord, actual) == 48);
static_assert(offsetof(FaultRecord, epoch) == 56 && offsetof(FaultRecord, last_task) == 64);
static_assert(offsetof(FaultRecord, missing_task) == 80 && offsetof(FaultRecord, missing_state) == 92);
static_assert(offsetof(FaultRecord, reserved1) == 96);
static_assert(offsetof(FaultDumpHeader, plan_hash) == 48 && offsetof(FaultDumpHeader, checksum) == 64);

TEST(FaultRecord, GoldenBytes) {
  FaultRecord r = make_fault_record();
  r.kind = kFaultDeadlock;
  r.role = kFaultRoleWorker;
  r.worker = 2;
  r.slot = 5;
  r.task_id = 311;
  r.opcode = 0x40;
  r.operand_row = 4;
  r.phase = kFaultPhaseWaiting;
  r.wait_idx = 1;
  r.event = 12;
  r.expected = 16;
  r.actual = 15;
  r.epoch = 0x100000002ULL;
  r.last_task = 86;
  r.last_worker = 1;
  r.last_slot = 8;
  r.missing_task = 87;
  r.missing_worker = 1;
  r.missing_slot = 9;
  r.missing_state = kFaultMissingFinished;
  const std::array<uint32_t, 32> golden = {1,  1, 2, 5, 311, 0x40, 4, 2, 1, 12, 16, 0, 15, 0, 2, 1,
                                           86, 1, 8, 0, 87,  1,    9, 3, 0, 0,  0,  0, 0,  0, 0, 0};
  std::array<uint32_t, 32> words{};
  static_assert(sizeof words == sizeof r);
  std::memcpy(words.data(), &r, sizeof r);
  EXPECT_EQ(words, golden);
}

TEST(FaultRecord, AnEmptyRecordNamesNoPlace) {
  const FaultRecord r = make_fault_record();
  for (const uint32_t place : {r.worker, r.slot, r.task_id, r.opcode, r.operand_row, r.wait_idx, r.event, r.last_task,
                               r.last_worker, r.last_slot, r.missing_task, r.missing_worker, r.missing_slot})
    EXPECT_EQ(place, kFaultNone);
  EXPECT_EQ(r.expected, 0U);
  EXPECT_EQ(r.missing_state, kFaultMissingUnknown);
}

}  // namespace
}  // namespace megartp::abi
