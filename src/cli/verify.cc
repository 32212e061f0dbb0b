// megartp verify: proofs about plans, launch graphs and compiled kernels; each kind of input registers a command of its
// own.
#include "cli/verify.h"

#include <memory>

namespace megartp::cli {

std::vector<Command> add_verify_commands(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("verify", "Prove plans, launch graphs and compiled kernels free of races and deadlocks");
  app->require_subcommand(1);
  return {add_verify_cubin(*app)};
}

}  // namespace megartp::cli
