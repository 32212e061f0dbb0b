#include "backends/cuda_mega/mega_fault.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::cuda_mega {
namespace {

using abi::FaultRecord;

bool makes_sense(const FaultRecord& r) {
  return r.kind != 0 && r.kind < abi::kFaultKinds && r.role != 0 && r.role < abi::kFaultRoles && r.phase != 0 &&
         r.phase < abi::kFaultPhases;
}

// The worker's own record, or what its epoch tells.
FaultRecord record_of(const KernelPlan& plan, uint32_t worker, const FaultRecord& written, bool has_finished,
                      uint64_t epoch) {
  FaultRecord r = abi::make_fault_record();
  r.worker = worker;
  r.epoch = epoch;
  if (!makes_sense(written)) {
    if (has_finished) {
      r.phase = abi::kFaultPhaseDone;
      r.slot = plan.queue_depth;
    }
    return r;
  }
  r.kind = written.kind;
  r.role = written.role;
  r.phase = written.phase;
  r.slot = std::min(written.slot, plan.queue_depth);
  if (r.slot == plan.queue_depth) return r;
  // From the queue: a role that had not reached the instruction yet saw another one in its place.
  const abi::Instruction& i = plan.instruction(worker, r.slot);
  if (i.opcode != abi::kOpcodeNoOp) {
    r.task_id = i.task_id;
    r.opcode = i.opcode;
    r.operand_row = i.operand_row;
  }
  const bool waits = r.phase == abi::kFaultPhaseWaiting && written.wait_idx < abi::num_waits(i);
  if (!waits) {
    if (r.phase == abi::kFaultPhaseWaiting) r.phase = abi::kFaultPhaseRunning;
    return r;
  }
  r.wait_idx = written.wait_idx;
  r.event = i.waits[written.wait_idx].event;
  r.expected = i.waits[written.wait_idx].threshold;
  r.actual = written.actual;
  if (r.kind == abi::kFaultBystander) r.kind = abi::kFaultDeadline;  // it waited too when the others gave up
  return r;
}

}  // namespace

MegaFault describe_fault(const KernelPlan& plan, std::span<const FaultRecord> records, std::span<const uint64_t> epochs,
                         std::chrono::milliseconds deadline) {
  MegaFault fault;
  fault.dump = make_fault_dump(plan);
  fault.dump.timeout_ms = static_cast<uint32_t>(deadline.count());
  uint64_t epoch = 1;
  for (const FaultRecord& r : records)
    if (makes_sense(r)) epoch = std::max(epoch, r.epoch);
  bool is_deadlock = false, is_slow = false;
  uint32_t waiting = 0;
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    const FaultRecord r = record_of(plan, w, records[w], epochs[w] >= epoch, epoch);
    waiting += r.phase == abi::kFaultPhaseWaiting ? 1 : 0;
    is_deadlock |= r.kind == abi::kFaultDeadline && r.phase == abi::kFaultPhaseWaiting;
    is_slow |= r.kind == abi::kFaultDeadline && r.phase != abi::kFaultPhaseWaiting;
    fault.dump.records.push_back(r);
  }
  is_deadlock = is_deadlock && !is_slow;
  fault.error.code = is_deadlock ? ErrorCode::kDeadlock : ErrorCode::kTimeout;
  std::string cause = "no record says why";
  if (const auto explained = explain_fault(fault.dump, &plan)) {
    cause = explained->sentence;
    for (const std::string& line : explained->lines) fault.error.details += line + "\n";
    fault.error.details += "cause: " + explained->sentence + "\n";
  }
  fault.error.message =
      fmt::format("mega: {}: no progress for {} ms ({} of {} workers wait); {}", is_deadlock ? "deadlock" : "time-out",
                  deadline.count(), waiting, plan.num_workers, cause);
  return fault;
}

}  // namespace megartp::cuda_mega
