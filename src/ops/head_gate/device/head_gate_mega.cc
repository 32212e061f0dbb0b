// head_gate in the persistent kernel.
#include <array>

#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<MegaOpInfo, 1> kMegaOps{
    {{kOpcode_head_gate, "ops/head_gate/device/head_gate_mega.cuh", "HeadGateMega", {}, nullptr, nullptr, nullptr}}};

}  // namespace

std::span<const MegaOpInfo> head_gate_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
