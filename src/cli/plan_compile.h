// megartp plan --compile: the persistent kernel of a plan through the compiler, without a GPU.
#pragma once

#include "cli/cli.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {

// Prints the pages that each op takes, and registers and local memory of the kernel. Exit code 1 when it needs local
// memory: the backend `mega` would refuse it.
int compile_mega(const KernelPlan& plan, const CommonOptions& common);

}  // namespace megartp::cli
