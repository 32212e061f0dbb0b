// The GEMM and the finalizer of qkv_a in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/opcodes.gen.h"
#include "ops/qkv_a/qkv_a.h"
#include "ops/qkv_a/qkv_a_abi.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 2> kPacked{kQkvAQProj, kQkvAKvProj};

Fp8GemmSlots slots() { return kQkvAGemmSlots; }

// Of a part two splits a page.
uint32_t num_finalize_pages(const InstructionCheck& c) {
  const uint32_t parts = c.instruction.payload[2];
  return ((parts & 1) + (parts >> 1)) * ceil_div(decode_spec<QkvASpec>(c.spec).gemm.splits, 2U);
}
// As the ordinary finalizer, two pieces of eight values a thread.
Status check_finalize(const InstructionCheck& c) {
  constexpr int64_t kVector = 8;
  constexpr int64_t kMaxRow = kVector * 256;
  const auto s = decode_spec<QkvASpec>(c.spec);
  const int64_t head = s.kv_lora + 4 * ceil_div<int64_t>(s.kv_lora, kBlockK);  // bytes of a record before the key
  return mega_dims_fit(q_lora(s) % kVector == 0 && s.kv_lora % kVector == 0 && s.rope % kVector == 0 &&
                           head % 16 == 0 && q_lora(s) <= kMaxRow && s.kv_lora + s.rope <= kMaxRow &&
                           s.gemm.splits <= kMaxGpuSplits,
                       "rows of up to 2048 values, q_lora, kv_lora and rope multiples of 8, records with aligned keys "
                       "and up to 8 splits");
}

constexpr std::array<MegaOpInfo, 2> kMegaOps{
    {SplitGemmMegaOp<QkvASpec, slots>::info(kOpcode_qkv_a_gemm, kPacked).taking(2.6),
     MegaOpInfo{kOpcode_qkv_a_finalize,
                "ops/qkv_a/device/qkv_a_mega.cuh",
                "QkvAFinalizeMega",
                {},
                num_finalize_pages,
                nullptr,
                check_finalize}
         .taking(2.5)}};

}  // namespace

std::span<const MegaOpInfo> qkv_a_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
