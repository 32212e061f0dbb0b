// Shared parts of the command-line tool: options that every command takes, output streams, exit codes.
//
// Data goes to stdout, everything else to stderr. With --json one object per command: schema, version, command, result.
// Exit codes: 0 success, 1 a check failed, 2 usage, 3 bad input file, 4 unsupported here, 5 run-time failure, 6 timeout
// or deadlock, 70 internal error, 130 interrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "megartp/error.h"
#include "megartp/op_graph.h"
#include "models/glm52/glm52.h"

namespace megartp::cli {

using Json = nlohmann::ordered_json;

struct CommonOptions {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  bool no_progress = false;
  std::string color = "auto";
};

// Adds --json, -q, -v, --color, --no-progress.
void add_common_options(CLI::App& app, CommonOptions& options);

// Prints {"schema", "version", "command", "result"} and returns 0.
int print_json(std::string_view command, Json result);
// One line "megartp: error: ..." on stderr (details below it); with --json also an object with "error" on stdout.
int print_error(const Error& error, const CommonOptions& options, std::string_view command);

// A Result's value, or print_error's exit code thrown as ExitCode (caught in main). Only for command bodies.
struct ExitCode {
  int code;
};
template <class T>
T value_or_exit(Result<T> result, const CommonOptions& options, std::string_view command) {
  if (!result) throw ExitCode{print_error(result.error(), options, command)};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Writes text to a file (atomically) or, for "-" and "", to stdout.
Status write_output(const std::string& path, std::string_view text);

// A bar on stderr, only when that is a terminal and nothing forbids it.
class ProgressBar {
 public:
  ProgressBar(std::string label, const CommonOptions& options);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(uint64_t done, uint64_t total);

 private:
  std::string label_;
  bool enabled_;
  int last_percent_ = -1;
};

// Columns aligned by display width; numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add_row(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string to_string() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// Colours obey --color, then NO_COLOR, then whether the stream is a terminal.
bool use_color(const CommonOptions& options, int fd);
std::string paint(std::string_view text, std::string_view ansi, bool enabled);

// --- the model options that run, plan and graph share
// --------------------------------------------------------------------

struct ModelOptions {
  std::string model;  // "glm52-attention-pre"
  std::string config_path;
  int64_t layer = 6;
  bool hadamard = false;
  bool act_pow2_scale = false;
  bool index_q_plain_scale = false;
  bool index_k_pow2_scale = false;
  bool mla_plain_scale = false;
};
struct BatchOptions {
  int64_t m = 16;
  int64_t kv = 8192;
  int64_t requests = 0;  // 0: two, or one for a single row
  int64_t num_requests() const { return requests != 0 ? requests : m < 2 ? 1 : 2; }
};
struct PlanOptions {
  std::string target = "cpu";
  std::string packer = "critical-path";
  std::string finalizer = "fused";
  std::string events = "exact";
  uint32_t workers = 0;
  uint32_t num_sms = 0;  // of the GPU that is there; 0: the target's
};

void add_model_options(CLI::App& app, ModelOptions& options);
void add_batch_options(CLI::App& app, BatchOptions& options);
std::vector<std::string> packer_names();
void add_plan_options(CLI::App& app, PlanOptions& options, const std::string& default_target);

struct Model {
  glm52::Config config;
  glm52::Options options;
};
Result<Model> load_model(const ModelOptions& options);

// --- commands: each registers itself and sets a body that returns the exit code
// ------------------------------------------

using Body = std::function<int()>;
struct Command {
  CLI::App* app = nullptr;
  Body body;
};
// Returns the command of the parsed subcommand.
std::vector<Command> add_commands(CLI::App& root);

Command add_run_command(CLI::App& root);
Command add_plan_command(CLI::App& root);
Command add_plan_diff_command(CLI::App& plan);
Command add_graph_command(CLI::App& root);
Command add_launch_command(CLI::App& root);
Command add_bench_command(CLI::App& root);
Command add_disasm_command(CLI::App& root);
Command add_explain_fault_command(CLI::App& root);
std::vector<Command> add_weights_commands(CLI::App& root);
Command add_ops_command(CLI::App& root);
Command add_doctor_command(CLI::App& root);
Command add_version_command(CLI::App& root);
Command add_completion_command(CLI::App& root);

}  // namespace megartp::cli
