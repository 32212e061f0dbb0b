// megartp plan --partition-graph: tasks and events of an abstract graph, as a table or as JSON.
#pragma once

#include <string>

#include "cli/cli.h"

namespace megartp::cli {

// The whole command; returns the exit code. `path` "-" is stdin.
int run_plan_partition(const std::string& path, const std::string& event_mode, const CommonOptions& common);

}  // namespace megartp::cli
