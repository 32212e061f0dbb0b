// Parts of the q_absorb family that stand in files of their own; q_absorb.cc puts them together.
#pragma once

#include "ops/op_family.h"

namespace megartp::ops {

// The whole op in double precision.
Status q_absorb_reference(const ReferenceContext& context);
// One tile on the CPU.
void q_absorb_run_tile(const CpuTile& tile);

}  // namespace megartp::ops
