// Parts of the indexer_k family that stand in files of their own; indexer_k.cc puts them together.
#pragma once

#include "ops/common/fp8_gemm_stage.h"
#include "ops/op_family.h"

namespace megartp::ops {

// Where the GEMM's operands stand.
Fp8GemmSlots indexer_k_gemm_slots();
// The whole op in double precision.
Status indexer_k_reference(const ReferenceContext& context);
// One tile of any of the three opcodes on the CPU.
void indexer_k_run_tile(const CpuTile& tile);

}  // namespace megartp::ops
