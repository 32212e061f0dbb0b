#include "cli/launch_options.h"

#include <fmt/format.h>

namespace megartp::cli {

void add_launch_options(CLI::App& app, LaunchArgs& args) {
  app.add_option("--edge", args.edges,
                 "Set one edge, as in 'A0->B0.gemm=full': full, enter-only, prologue or prefetch; may be repeated")
      ->type_name("EDGE=LEVEL");
  app.add_option("--level", args.level, "Level of the other edges where the prover allows it")
      ->check(CLI::IsMember({"full", "enter-only", "prologue", "prefetch"}))
      ->capture_default_str();
  app.add_option("--only", args.only_ops, "Only the kernels of these ops, as in A0,B0")->delimiter(',');
}

Result<LaunchOptions> to_launch_options(const LaunchArgs& args) {
  LaunchOptions options;
  options.default_level = MEGARTP_TRY(parse_edge_level(args.level));
  options.only_ops = args.only_ops;
  for (const std::string& text : args.edges) {
    auto [name, level] = MEGARTP_TRY(parse_edge_setting(text));
    if (!options.levels.emplace(name, level).second)
      return make_error(ErrorCode::kInvalidArgument, fmt::format("--edge names '{}' twice", name));
  }
  return options;
}

}  // namespace megartp::cli
