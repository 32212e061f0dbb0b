// Bounds that every plan keeps, so that a reader can reject a lying file before it allocates; and the padding
// instruction.
#pragma once

#include <cstdint>

#include "abi/instruction.h"

namespace megartp {

inline constexpr uint32_t kMaxWorkers = 1U << 16;
inline constexpr uint32_t kMaxQueueDepth = 1U << 26;
inline constexpr uint64_t kMaxPlanInstructions = uint64_t{1} << 28;
inline constexpr uint64_t kMaxWorkspaceBytes = uint64_t{1} << 46;

// Fills the end of shorter queues: opcode 0, no task, no join, everything else zero.
inline abi::Instruction make_noop() {
  abi::Instruction i{};
  i.opcode = abi::kOpcodeNoOp;
  i.task_id = abi::kNoTask;
  i.join_counter = abi::kNoJoin;
  return i;
}

}  // namespace megartp
