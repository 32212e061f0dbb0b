// add_rmsnorm_quant in the persistent kernel.
#include <array>

#include "abi/mega.h"
#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"
#include "ops/rmsnorm_quant/rmsnorm_quant_abi.h"

namespace megartp::ops {
namespace {

// The row, the other row, the gains.
uint32_t num_pages(const InstructionCheck&) { return 3; }

Status check(const InstructionCheck& c) {
  constexpr uint32_t kMaxColumns = abi::kMegaPageBytes / 2;
  const auto s = decode_spec<RmsnormQuantSpec>(c.spec);
  return mega_dims_fit(s.cols % 8 == 0 && s.cols <= kMaxColumns, "rows of a multiple of 8 up to 8192 values");
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{MegaOpInfo{kOpcode_add_rmsnorm_quant,
                                                        "ops/rmsnorm_quant/device/rmsnorm_quant_mega.cuh",
                                                        "RmsnormQuantMega",
                                                        {},
                                                        num_pages,
                                                        nullptr,
                                                        check}
                                                 .taking(3.6)};

}  // namespace

std::span<const MegaOpInfo> rmsnorm_quant_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
