// Options of commands that make a launch plan: launch, bench, run.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "launch/launch_plan.h"

namespace megartp::cli {

struct LaunchArgs {
  std::vector<std::string> edges;  // "A0->B0.gemm=full"
  std::string level = "prefetch";
  std::vector<std::string> only_ops;
};

// Adds --edge, --level, --only.
void add_launch_options(CLI::App& app, LaunchArgs& args);
// Without the mode. kInvalidArgument for malformed settings.
Result<LaunchOptions> to_launch_options(const LaunchArgs& args);

}  // namespace megartp::cli
