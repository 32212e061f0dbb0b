// Runs the command-line tool as a user does and keeps what it printed.
#pragma once

#include <string>
#include <string_view>

namespace megartp::test {

struct CliResult {
  int exit_code = -1;  // 128 + signal for a killed process
  std::string out;
  std::string err;
};

// `arguments` is shell text ("run glm52-attention-pre --m 3"). The cache folder is one of this test process.
CliResult run_cli(const std::string& arguments);

// A folder that is removed at exit, and a path in it.
std::string scratch_path(std::string_view name);

// A small config.json (every op, several tiles of each kind) and its path.
std::string small_config_path();

}  // namespace megartp::test
