// An exhaustive judge of small plans: every interleaving of the steps of the queues, at the level of the instruction
// ABI (docs/instruction-abi.md), over several runs where counters drift.
//
// It shares nothing with the prover but OpFamily::regions. A plan is harmful when
//   - some interleaving comes to a stop before the end of all queues;
//   - an access can begin while an earlier one (in program order: task ids) that conflicts with it is not over;
//   - in program order, a read finds in its tensor's memory what the writer of another tensor left, or nothing;
//   - one tile reads and writes the same memory through two tensors.
//
// A task may send its lower publications before it is over, and a read is over only with the task. States are
// remembered by the positions of the workers, which determine all counters.
#pragma once

#include <cstddef>
#include <string>

#include "plan/kernel_plan.h"

namespace megartp::test {

struct Judgement {
  bool is_harmful = false;
  std::string why;
  size_t num_states = 0;
};

// The plan must pass check_plan_structure.
Judgement judge_plan(const KernelPlan& plan);

}  // namespace megartp::test
