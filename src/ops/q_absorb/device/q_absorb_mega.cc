// q_absorb in the persistent kernel: four pages, the weight by a tensor map.
#include <array>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"
#include "ops/q_absorb/device/q_absorb_layout.h"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::ops {
namespace {

constexpr uint32_t kBoxColumns = 128;  // a tile's

uint32_t num_pages(const InstructionCheck&) { return device::kAbsorbPages; }

// kv_b, E4M3 [heads * (nope + v), kv_lora].
std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
  const auto dims = operands[kQAbsorbKvB].dims;
  MegaOpMap map{0, kQAbsorbKvB, {}};
  map.spec.dims = {static_cast<uint64_t>(dims[1]), static_cast<uint64_t>(dims[0])};
  map.spec.strides = {static_cast<uint64_t>(dims[1])};
  map.spec.box = {kBoxColumns, device::kAbsorbBoxRows};
  return {map};
}

// As the ordinary kernel, whose bits it has: other dims go to the generic one there, which adds in another order.
Status check(const InstructionCheck& c) {
  const auto s = decode_spec<QAbsorbSpec>(c.spec);
  const uint32_t max_nope = device::kAbsorbStepDepth * device::kAbsorbMaxSteps;
  return mega_dims_fit(s.nope <= max_nope && s.nope % 4 == 0 && s.kv_lora % 16 == 0 && s.rope % 8 == 0,
                       fmt::format("nope of a multiple of 4 up to {}, kv_lora of 16 and rope of 8, not {}, {} and {}",
                                   max_nope, s.nope, s.kv_lora, s.rope));
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{
    MegaOpInfo{kOpcode_q_absorb, "ops/q_absorb/device/q_absorb_mega.cuh", "QAbsorbMega", {}, num_pages, maps, check}
        .taking(3.5)};

}  // namespace

std::span<const MegaOpInfo> q_absorb_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
