// q_absorb in the persistent kernel.
#include <array>

#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::ops {
namespace {

constexpr uint32_t kPages = 2;

uint32_t num_pages(const InstructionCheck&) { return kPages; }

// kv_b, BF16 [heads * (nope + v), kv_lora].
std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
  const auto dims = operands[kQAbsorbKvB].dims;
  MegaOpMap map{0, kQAbsorbKvB, {}};
  map.spec.element = operands[kQAbsorbKvB].dtype;
  const auto row_elems = static_cast<uint64_t>(dims[1]);
  map.spec.dims = {row_elems, static_cast<uint64_t>(dims[0])};
  map.spec.strides = {row_elems * size_in_bytes(map.spec.element)};
  map.spec.box = {128, 64};
  return {map};
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{
    {{kOpcode_q_absorb, "ops/q_absorb/device/q_absorb_mega.cuh", "QAbsorbMega", {}, num_pages, maps, nullptr}}};

}  // namespace

std::span<const MegaOpInfo> q_absorb_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
