// megartp verify and its subcommands, one file each.
#pragma once

#include <vector>

#include "cli/cli.h"

namespace megartp::cli {

std::vector<Command> add_verify_commands(CLI::App& root);

Command add_verify_launch(CLI::App& verify);

}  // namespace megartp::cli
