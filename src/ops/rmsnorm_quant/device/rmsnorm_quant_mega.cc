// add_rmsnorm_quant in the persistent kernel.
#include <array>

#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"
#include "ops/rmsnorm_quant/rmsnorm_quant_abi.h"

namespace megartp::ops {
namespace {

Status check(const InstructionCheck& c) {
  constexpr uint32_t kMaxColumns = 8 * 4 * 256;
  const auto s = decode_spec<RmsnormQuantSpec>(c.spec);
  return mega_dims_fit(s.cols % 8 == 0 && s.cols <= kMaxColumns, "rows of a multiple of 8 up to 8192 values");
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{{{kOpcode_add_rmsnorm_quant,
                                               "ops/rmsnorm_quant/device/rmsnorm_quant_mega.cuh",
                                               "RmsnormQuantMega",
                                               {},
                                               nullptr,
                                               nullptr,
                                               check}}};

}  // namespace

std::span<const MegaOpInfo> rmsnorm_quant_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
