// The JSON header of a plan file: everything of a plan that has a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plan/kernel_plan.h"

namespace megartp {

// Sizes of the sections that follow the header, beyond what the plan itself says.
struct PlanHeader {
  uint64_t num_events = 0;
  uint64_t num_joins = 0;
  uint64_t num_specs = 0;
};

std::string plan_header_to_json(const KernelPlan& plan);

// Fills names, shapes, sizes, tensors and the names of the operand rows. Errors (kParse) name the field.
Result<PlanHeader> parse_plan_header(std::string_view json_text, KernelPlan& plan);

}  // namespace megartp
