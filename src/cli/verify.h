// megartp verify and its subcommands, one file each.
#pragma once

#include <vector>

#include "cli/cli.h"

namespace megartp::cli {

std::vector<Command> add_verify_commands(CLI::App& root);

Command add_verify_launch(CLI::App& verify);
Command add_verify_cubin(CLI::App& verify);
// `verify MODEL`: the options and the body of `verify` itself.
Command add_verify_model(CLI::App& verify);
Command add_verify_plan(CLI::App& verify);

}  // namespace megartp::cli
