// add_rmsnorm_quant in the persistent kernel.
#include <array>

#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<MegaOpInfo, 1> kMegaOps{{{kOpcode_add_rmsnorm_quant,
                                               "ops/rmsnorm_quant/device/rmsnorm_quant_mega.cuh",
                                               "RmsnormQuantMega",
                                               {},
                                               nullptr,
                                               nullptr,
                                               nullptr}}};

}  // namespace

std::span<const MegaOpInfo> rmsnorm_quant_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
