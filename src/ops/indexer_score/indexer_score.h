// Parts of the indexer_score family that stand in files of their own; indexer_score.cc puts them together.
#pragma once

#include "ops/op_family.h"

namespace megartp::ops {

// The whole op in double precision.
Status indexer_score_reference(const ReferenceContext& context);
// One tile on the CPU.
void indexer_score_run_tile(const CpuTile& tile);

}  // namespace megartp::ops
