// megartp run --explore: every order of a small plan that can make a difference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/cli.h"
#include "models/glm52/layer_run.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {

// Prints the report; a deadlock's records go to `fault_dump` unless that is empty. 0: every execution gave the
// sequential bits; 1: one gave others; 6: one ended in a deadlock.
int explore_layer(const glm52::LayerRun& run, std::shared_ptr<const KernelPlan> plan, uint64_t max_executions,
                  const std::string& fault_dump, const CommonOptions& common);

}  // namespace megartp::cli
