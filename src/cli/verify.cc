// megartp verify: proofs over plans, launch graphs and compiled code.
#include "cli/verify.h"

namespace megartp::cli {

std::vector<Command> add_verify_commands(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("verify", "Prove that something is free of races and deadlocks, or say where not");
  app->require_subcommand(0, 1);
  app->footer(
      "Exit codes: 0 nothing is wrong (there may be warnings), 1 something is, 2 usage, 3 a file cannot be read.\n"
      "Examples:\n"
      "  megartp verify glm52-attention-pre --target b300\n"
      "  megartp verify plan layer.plan --json\n"
      "  megartp verify launch graph.json");
  return {add_verify_model(*app), add_verify_plan(*app), add_verify_launch(*app), add_verify_cubin(*app)};
}

}  // namespace megartp::cli
