#include "cli/cli_runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace megartp::test {
namespace {

class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / fmt::format("megartp_cli_test_{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

const Scratch& scratch() {
  static const Scratch s;
  return s;
}

}  // namespace

std::string scratch_path(std::string_view name) { return (scratch().path() / name).string(); }

CliResult run_cli(const std::string& arguments) {
  CliResult result;
  const std::string out = scratch_path("stdout");
  const std::string err = scratch_path("stderr");
  const std::string command = fmt::format("MEGARTP_CACHE_DIR='{}' '{}' {} >'{}' 2>'{}' </dev/null",
                                          scratch_path("cache"), MEGARTP_CLI, arguments, out, err);
  const int status = std::system(command.c_str());
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_file(out).value();
  result.err = read_file(err).value();
  return result;
}

std::string small_config_path() {
  const std::string path = scratch_path("small_config.json");
  const Status ok = write_file_atomic(path, R"json({
 "model_type": "glm_moe_dsa", "hidden_size": 512, "q_lora_rank": 256, "kv_lora_rank": 128, "num_attention_heads": 4,
 "index_n_heads": 4, "index_head_dim": 128, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 64,
 "rms_norm_eps": 1e-05, "rope_parameters": {"rope_type": "default", "rope_theta": 8000000.0}, "num_hidden_layers": 8,
 "index_topk_freq": 4, "index_skip_topk_offset": 3
})json");
  EXPECT_TRUE(ok);
  return path;
}

}  // namespace megartp::test
