// A plan as JSON for people and scripts (`megartp plan --json`). Everything is derived from the instructions.
#pragma once

#include <string>

#include "plan/kernel_plan.h"

namespace megartp {

// One object: tasks, events, workers, queue_depth, queue_shape [W, D, 32], workers_full, noops, tasks_per_op (program
// order), events_list (threshold, producers, consumers, tasks as inclusive ranges of ids), operand_table and
// operand_table_shape [rows, 16], tensors, specs. The plan must have passed check_plan.
std::string plan_to_json(const KernelPlan& plan);

}  // namespace megartp
