// The GEMM and the finalizer of qkv_a in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/opcodes.gen.h"
#include "ops/qkv_a/qkv_a_abi.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 2> kPacked{kQkvAQProj, kQkvAKvProj};

uint32_t num_pages(const InstructionCheck& c) {
  return mega_gemm_pages(decode_spec<QkvASpec>(c.spec).gemm, decode_fp8_gemm_payload(c.instruction.payload));
}
std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
  return {mega_x_map(kQkvAX, operands)};
}

constexpr std::array<MegaOpInfo, 2> kMegaOps{
    {{kOpcode_qkv_a_gemm, "ops/qkv_a/device/qkv_a_mega.cuh", "QkvAGemmMega", kPacked, num_pages, maps, check_mega_gemm},
     {kOpcode_qkv_a_finalize, "ops/qkv_a/device/qkv_a_mega.cuh", "QkvAFinalizeMega", {}, nullptr, nullptr, nullptr}}};

}  // namespace

std::span<const MegaOpInfo> qkv_a_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
