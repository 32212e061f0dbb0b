// MegaImage: what the persistent kernel needs of a plan, without an address.
//
// Made once per plan; MegaExecutable adds addresses (mega_params.h). Invariant: the image fits abi/mega.h, and every
// opcode has a device op that can do the instruction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "abi/mega.h"
#include "backends/cuda_common/device_tensors.h"
#include "plan/kernel_plan.h"

namespace megartp::cuda_mega {

// A pointer in MegaParams::operands.
struct MegaOperand {
  uint32_t row = 0, slot = 0;
  TensorId tensor = kInvalidId;
  WeightLayout layout = WeightLayout::kCheckpoint;
};
// A tensor map in MegaParams::maps, which several rows may share.
struct MegaTensorMap {
  TensorId tensor = kInvalidId;
  TensorMapSpec spec;
};

struct MegaImage {
  std::vector<abi::MegaRecord> records;  // [workers, depth]
  std::vector<uint32_t> opcodes;         // sorted
  std::vector<MegaOperand> operands;
  std::vector<MegaTensorMap> maps;
  std::vector<std::array<uint8_t, abi::kMegaRowMaps>> row_maps;  // index into maps, or abi::kMegaNoMap
  std::vector<std::array<uint32_t, abi::kMegaSpecWords>> specs;
  std::vector<cuda::TensorUse> tensors;  // of the plan, in its order
  uint32_t page_uses = 0;                // MegaParams::page_uses
};

// `plan` has passed check_plan. kUnsupported naming opcodes that have no device op, and instructions that it cannot do;
// kOutOfResources where the plan has more rows, specs or maps than the kernel's parameters hold.
Result<MegaImage> make_mega_image(const KernelPlan& plan);

}  // namespace megartp::cuda_mega
