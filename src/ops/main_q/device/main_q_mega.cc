// main_q in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/main_q/main_q_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 1> kPacked{kMainQWeight};

uint32_t num_pages(const InstructionCheck& c) {
  return mega_gemm_pages(c.operands[kMainQX].dims[0], ceil_div<int64_t>(decode_spec<MainQSpec>(c.spec).k, kBlockK));
}
Status check(const InstructionCheck& c) {
  const auto s = decode_spec<MainQSpec>(c.spec);
  MEGARTP_TRY(mega_dims_fit(s.kv_lora % 2 == 0, "an even kv_lora"));
  const uint32_t* p = c.instruction.payload;
  return check_mega_gemm(c.operands[kMainQX].dims, ceil_div<int64_t>(s.k, kBlockK), {p[0], int64_t{p[0]} + p[1]},
                         {p[2], int64_t{p[2]} + p[3]});
}
std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
  return {mega_x_map(kMainQX, operands)};
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{
    MegaOpInfo{kOpcode_main_q, "ops/main_q/device/main_q_mega.cuh", "MainQMega", kPacked, num_pages, maps, check}
        .taking(2.5)};

}  // namespace

std::span<const MegaOpInfo> main_q_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
