// MegaOpInfo: how an opcode runs in the persistent kernel (device/mega/mega_kernel.cuh).
//
// A family's folder has device/NAME_mega.cc, which lists its opcodes that have a device op; the build finds it as it
// finds NAME_device.cc. The backend `mega` takes from here which types the kernel is instantiated with, what shared
// memory an instruction takes and which tensor maps its operand row needs. Nothing here knows CUDA headers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"
#include "ops/device_kernel.h"
#include "ops/op_family.h"

namespace megartp {

// A tensor map of an operand row: MegaContext::map(which).
struct MegaOpMap {
  uint32_t which = 0;  // below abi::kMegaRowMaps
  uint32_t slot = 0;   // of the operand
  TensorMapSpec spec;
};

struct MegaOpInfo {
  uint32_t opcode = 0;
  std::string_view header;  // "ops/qkv_a/device/qkv_a_mega.cuh"
  // A template of namespace megartp::device whose arguments are the opcodes, all that name it: "QkvAFinalizeMega".
  std::string_view type;
  // Operands that the device op takes in WeightLayout::kTiles64x128.
  std::span<const uint32_t> packed_slots;
  // Pages of shared memory that an instruction takes; nullptr: none. The instruction has passed check_instruction.
  uint32_t (*num_pages)(const InstructionCheck& check) = nullptr;
  // The same for every instruction of an operand row; nullptr: none.
  std::vector<MegaOpMap> (*maps)(std::span<const uint32_t> spec, std::span<const OperandType> operands) = nullptr;
  // kUnsupported, saying what: dims that the device op cannot do. nullptr: it does all that check_instruction accepts.
  Status (*check)(const InstructionCheck& check) = nullptr;
  // MegaRecord::slots, for code that several opcodes share.
  uint32_t (*shared_slots)(const InstructionCheck& check) = nullptr;
  // What a task takes besides its loads, on an H200 with up to 16 rows, from traces: packers go by it. 0: not known.
  double task_us = 0;

  constexpr MegaOpInfo taking(double us) const {
    MegaOpInfo op = *this;
    op.task_us = us;
    return op;
  }
};

// For MegaOpInfo::check: `what` says for which dims the device op is written.
inline Status mega_dims_fit(bool fit, std::string_view what) {
  if (fit) return {};
  return make_error(ErrorCode::kUnsupported, "the device op is written for " + std::string(what));
}

// nullptr: the opcode has no device op.
const MegaOpInfo* find_mega_op(uint32_t opcode);
// All, by opcode.
std::span<const MegaOpInfo* const> mega_ops();

}  // namespace megartp
