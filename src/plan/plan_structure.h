// Plans whose numbers are in range, but may not add up: what the prover and `megartp verify plan` start from, so that a
// wrong threshold is a finding with a place and not a file that cannot be read. Everything else uses check_plan,
// load_plan.
#pragma once

#include <string>
#include <string_view>

#include "plan/kernel_plan.h"

namespace megartp {

// check_plan without the sums: thresholds may lie above totals, signals and arrivals may add up to something else. Each
// instruction is still one that its family accepts.
Status check_plan_structure(const KernelPlan& plan);

Result<KernelPlan> parse_plan_structure(std::string_view bytes);
Result<KernelPlan> load_plan_structure(const std::string& path);

}  // namespace megartp
