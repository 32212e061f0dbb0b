// Small plans written as text, for tests of the prover:
//
//   stages   "A": add(x, x) -> y                        an op of a family, operands in the order of its row
//   queues   "A 0 -> e0", "B 0..3 <- e0>=2, e1>=1 -> e2+2, e#"    one queue a worker, one string an instruction or a
//   range
//
// A tile's number follows its stage's own order (rows of add and rmsnorm, then 128-wide columns of gemm). `e#` stands
// for one event a tile. Task ids go by stage, then tile.
#pragma once

#include <string>
#include <string_view>

#include "plan/kernel_plan.h"
#include "verify/plan/plan_proof.h"

namespace megartp::test {

struct TextPlan {
  KernelPlan plan;
  PlanLimits limits;
};

// The JSON object of tests/faults/plan/README.md. Errors (kParse) name what is wrong.
Result<TextPlan> parse_text_plan(std::string_view json);

}  // namespace megartp::test
