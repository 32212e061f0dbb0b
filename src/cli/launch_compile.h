// megartp launch --compile: the plan's kernels through the compiler and the scan of their code, without a GPU.
#pragma once

#include <string>

#include "cli/cli.h"
#include "launch/launch_plan.h"

namespace megartp::cli {

struct CompileArgs {
  std::string arch = "sm_90a";
  bool no_cache = false;
  bool fuzz = false;  // with the random delays of run --fuzz
};

// Prints what every kernel takes and what the scan has against it. Exit code 1 when code breaks what the plan was
// proved with.
int compile_plan(const LaunchPlan& plan, const CompileArgs& args, const CommonOptions& common);

}  // namespace megartp::cli
