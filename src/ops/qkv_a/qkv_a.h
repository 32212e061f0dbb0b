// The parts of the qkv_a family, put together by qkv_a.cc.
#pragma once

#include "ops/common/fp8_gemm_stage.h"
#include "ops/op_family.h"
#include "ops/qkv_a/qkv_a_abi.h"

namespace megartp::ops {

// Longest row (q_lora + kv_lora + rope) that a finalizer can hold in its scratch, as floats.
inline constexpr int64_t kQkvAMaxRow = static_cast<int64_t>(kCpuScratchBytes / sizeof(float));

Status qkv_a_reference(const ReferenceContext& context);
void run_qkv_a_tile(const CpuTile& tile);
Status check_qkv_a(const InstructionCheck& check);

inline constexpr Fp8GemmSlots kQkvAGemmSlots{
    kQkvAX, kQkvAXScale, {{{kQkvAQProj, kQkvAQProjScale}, {kQkvAKvProj, kQkvAKvProjScale}}}, kQkvAPartial};

}  // namespace megartp::ops
