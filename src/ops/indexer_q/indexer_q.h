// Parts of the indexer_q family that stand in files of their own; indexer_q.cc puts them together.
#pragma once

#include "ops/common/fp8_gemm_stage.h"
#include "ops/op_family.h"

namespace megartp::ops {

// Where the GEMM's operands stand.
Fp8GemmSlots indexer_q_gemm_slots();
// The whole op in double precision.
Status indexer_q_reference(const ReferenceContext& context);
// One tile of any of the three opcodes on the CPU.
void indexer_q_run_tile(const CpuTile& tile);

}  // namespace megartp::ops
