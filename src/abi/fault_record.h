// The fault record: where one waiter of a run stood when the run was given up. Plain data, same layout for host and
// device: cpu-threads fills it from its watchdog, the controller of a worker on a GPU from a note of who gave up.
//
// 128 bytes, 32 little-endian u32 (64-bit numbers lie low word first, on even words):
//
//   word   0      1      2        3     4        5       6            7
//        +------+------+--------+-----+--------+-------+------------+----------+
//        | kind | role | worker | slot| task_id| opcode| operand_row| phase    |
//        +------+------+--------+-----+--------+-------+------------+----------+
//   word   8          9      10 11       12 13     14 15     16 .. 18                       19
//        | wait_idx | event| expected | actual   | epoch    | last (task, worker, slot)    | 0 |
//   word  20 .. 22                     23              24 .. 31
//        | missing (task, worker, slot)| missing_state | 0   |
//
// `expected` and `actual` count from the start of this run (epoch), whatever earlier runs left in the counter. `last`
// is one that has signalled the event, as recently as the filler can tell; `missing` one that has not. Whoever cannot
// tell writes kNone. Reserved words are zero, and readers reject anything else.
//
// A dump file is a header and its records, nothing else: docs/instruction-abi.md.
#pragma once

#include <cstdint>

#include "abi/host_device.h"

namespace megartp::abi {

inline constexpr uint32_t kFaultVersion = 1;
inline constexpr uint32_t kFaultNone = 0xffffffffU;

// FaultRecord::kind: what the filler knows of the waiter.
inline constexpr uint32_t kFaultDeadlock = 1;   // nobody is left who could signal
inline constexpr uint32_t kFaultDeadline = 2;   // no progress for the time allowed
inline constexpr uint32_t kFaultBystander = 3;  // this one does not wait; it tells where the others were
inline constexpr uint32_t kFaultKinds = 4;

// FaultRecord::role: who waits.
inline constexpr uint32_t kFaultRoleWorker = 1;     // a CPU worker, or the role of a device worker that is not told
inline constexpr uint32_t kFaultRoleScheduler = 2;  // a task that the scheduler has yet to release
inline constexpr uint32_t kFaultRoleController = 3;
inline constexpr uint32_t kFaultRoleActivationLoader = 4;
inline constexpr uint32_t kFaultRoleWeightLoader = 5;
inline constexpr uint32_t kFaultRoleConsumer = 6;
inline constexpr uint32_t kFaultRoleStore = 7;
inline constexpr uint32_t kFaultRoles = 8;

// FaultRecord::phase: what it was doing.
inline constexpr uint32_t kFaultPhaseIdle = 1;     // between instructions, or not started
inline constexpr uint32_t kFaultPhaseWaiting = 2;  // for `event`
inline constexpr uint32_t kFaultPhaseRunning = 3;
inline constexpr uint32_t kFaultPhaseDone = 4;  // has no more to do in this run
inline constexpr uint32_t kFaultPhases = 5;

// FaultRecord::missing_state: what is known of the task that has yet to signal.
inline constexpr uint32_t kFaultMissingUnknown = 0;
inline constexpr uint32_t kFaultMissingNotStarted = 1;
inline constexpr uint32_t kFaultMissingRunning = 2;
inline constexpr uint32_t kFaultMissingFinished = 3;  // it ran, its signal did not arrive
inline constexpr uint32_t kFaultMissingStates = 4;

struct alignas(16) FaultRecord {
  uint32_t kind;
  uint32_t role;
  uint32_t worker;
  uint32_t slot;  // position in the worker's queue; under the dynamic scheduler, tasks that the worker has run
  uint32_t task_id;
  uint32_t opcode;
  uint32_t operand_row;
  uint32_t phase;
  uint32_t wait_idx;  // which of the instruction's waits; kFaultNone outside kFaultPhaseWaiting
  uint32_t event;     // kFaultNone outside kFaultPhaseWaiting
  uint64_t expected;
  uint64_t actual;
  uint64_t epoch;  // number of the run, from 1
  uint32_t last_task;
  uint32_t last_worker;
  uint32_t last_slot;
  uint32_t reserved0;
  uint32_t missing_task;
  uint32_t missing_worker;
  uint32_t missing_slot;
  uint32_t missing_state;
  uint32_t reserved1[8];
};
static_assert(sizeof(FaultRecord) == 128, "a fault record is 32 words");

inline constexpr uint32_t kScheduleStatic = 0;
inline constexpr uint32_t kScheduleDynamic = 1;

struct alignas(16) FaultDumpHeader {
  uint8_t magic[8];  // "MRTPFALT"
  uint32_t version;
  uint32_t header_bytes;
  uint32_t record_bytes;
  uint32_t num_records;
  uint32_t num_workers;
  uint32_t queue_depth;
  uint32_t num_tasks;
  uint32_t num_events;
  uint32_t schedule;
  uint32_t timeout_ms;
  uint64_t plan_hash[2];  // XXH3-128 of the plan file: high half, low half
  uint64_t checksum[2];   // XXH3-128 of the header before this field and of all records: high half, low half
  uint32_t reserved[4];
};
static_assert(sizeof(FaultDumpHeader) == 96, "a dump header is 24 words");

// A record that knows nothing: numbers that could be mistaken for a place are kFaultNone.
MEGARTP_HOST_DEVICE constexpr FaultRecord make_fault_record() {
  FaultRecord r{};
  r.kind = kFaultBystander;
  r.role = kFaultRoleWorker;
  r.phase = kFaultPhaseIdle;
  r.worker = r.slot = r.task_id = r.opcode = r.operand_row = r.wait_idx = r.event = kFaultNone;
  r.last_task = r.last_worker = r.last_slot = kFaultNone;
  r.missing_task = r.missing_worker = r.missing_slot = kFaultNone;
  return r;
}

}  // namespace megartp::abi
