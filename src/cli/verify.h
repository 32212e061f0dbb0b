// The commands below `megartp verify`. Each prints all findings and returns 1 when there is one.
#pragma once

#include <vector>

#include "cli/cli.h"

namespace megartp::cli {

std::vector<Command> add_verify_commands(CLI::App& root);

Command add_verify_cubin(CLI::App& verify);

}  // namespace megartp::cli
