// The parts of the main_q family, put together by main_q.cc.
#pragma once

#include "ops/main_q/main_q_abi.h"
#include "ops/op_family.h"

namespace megartp::ops {

Status main_q_reference(const ReferenceContext& context);
void run_main_q_tile(const CpuTile& tile);
Status check_main_q(const InstructionCheck& check);

}  // namespace megartp::ops
