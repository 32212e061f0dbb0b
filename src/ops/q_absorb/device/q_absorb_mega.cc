// q_absorb in the persistent kernel.
#include <array>

#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"
#include "ops/q_absorb/device/q_absorb_layout.h"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::ops {
namespace {

constexpr uint32_t kPages = 2;

uint32_t num_pages(const InstructionCheck&) { return kPages; }

// kv_b, FP8 [heads * (nope + v), kv_lora].
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

Status check(const InstructionCheck& c) {
  const auto s = decode_spec<QAbsorbSpec>(c.spec);
  return mega_dims_fit(
      s.nope % 4 == 0 && s.nope <= 64 * device::kAbsorbMaxSteps && s.kv_lora % 16 == 0 && s.rope % 8 == 0,
      "nope of a multiple of 4 up to 192, kv_lora of 16 and rope of 8");
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{
    {{kOpcode_q_absorb, "ops/q_absorb/device/q_absorb_mega.cuh", "QAbsorbMega", {}, num_pages, maps, check}}};

}  // namespace

std::span<const MegaOpInfo> q_absorb_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
