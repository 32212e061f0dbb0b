// megartp version: version, ABI, compiler.
#include <iostream>

#include "abi/instruction.h"
#include "backends/backend.h"
#include "cli/cli.h"

namespace megartp::cli {
namespace {

int run_version(const CommonOptions& common) {
  if (!common.json) {
    std::cout << "megartp " << MEGARTP_VERSION << "\n";
    return 0;
  }
  Json j;
  j["megartp"] = MEGARTP_VERSION;
  j["abi"] = abi::kAbiVersion;
  j["compiler"] = __VERSION__;
  for (const BackendInfo& b : backends()) j["backends"].push_back({{"name", b.name}, {"available", b.available}});
  return print_json("version", std::move(j));
}

}  // namespace

Command add_version_command(CLI::App& root) {
  auto args = std::make_shared<CommonOptions>();
  CLI::App* app = root.add_subcommand("version", "Print the version");
  add_common_options(*app, *args);
  return {app, [args] { return run_version(*args); }};
}

}  // namespace megartp::cli
