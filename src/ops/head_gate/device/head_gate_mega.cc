// head_gate in the persistent kernel.
#include <array>

#include "ops/head_gate/head_gate_abi.h"
#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

Status check(const InstructionCheck& c) {
  return mega_dims_fit(decode_spec<HeadGateSpec>(c.spec).hidden % 8 == 0, "hidden sizes of a multiple of 8");
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{MegaOpInfo{
    kOpcode_head_gate, "ops/head_gate/device/head_gate_mega.cuh", "HeadGateMega", {}, nullptr, nullptr, check}
                                                 .taking(0.6)};

}  // namespace

std::span<const MegaOpInfo> head_gate_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
