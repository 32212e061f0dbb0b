#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/trace.h"
#include "cli/verify.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_flag("--json", options.json, "Print one JSON object on stdout");
  app.add_flag("-q,--quiet", options.quiet, "Only data and errors");
  app.add_flag("-v,--verbose", options.verbose, "Say more on stderr");
  app.add_flag("--no-progress", options.no_progress, "No progress bar");
  app.add_option("--color", options.color, "Colours")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
}

int print_json(std::string_view command, Json result) {
  Json j;
  j["schema"] = fmt::format("megartp.{}.v1", command);
  j["version"] = MEGARTP_VERSION;
  j["command"] = command;
  j["result"] = std::move(result);
  std::cout << j.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  return 0;
}

int print_error(const Error& error, const CommonOptions& options, std::string_view command) {
  const int code = exit_code(error.code);
  std::cerr << "megartp: error: " << error.to_string() << "\n";
  if (!error.details.empty()) std::cerr << error.details;
  if (options.json) {
    Json j;
    j["schema"] = fmt::format("megartp.{}.v1", command);
    j["version"] = MEGARTP_VERSION;
    j["command"] = command;
    Json e;
    e["code"] = to_string(error.code);
    e["exit_code"] = code;
    e["message"] = error.message;
    for (const auto& [key, value] : error.context) e["context"][key] = value;
    if (!error.details.empty()) e["details"] = error.details;
    j["error"] = std::move(e);
    std::cout << j.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return code;
}

Status write_output(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    std::cout << text;
    return {};
  }
  return write_file_atomic(path, text);
}

bool use_color(const CommonOptions& options, int fd) {
  if (options.color == "always") return true;
  if (options.color == "never") return false;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && (term == nullptr || std::string_view(term) != "dumb");
}

std::string paint(std::string_view text, std::string_view ansi, bool enabled) {
  return enabled ? fmt::format("\x1b[{}m{}\x1b[0m", ansi, text) : std::string(text);
}

ProgressBar::ProgressBar(std::string label, const CommonOptions& options)
    : label_(std::move(label)), enabled_(!options.quiet && !options.no_progress && isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (enabled_ && last_percent_ >= 0) std::cerr << "\r\x1b[K" << std::flush;
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if (!enabled_ || total == 0) return;
  const int percent = static_cast<int>(done * 100 / total);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  const int filled = percent * 30 / 100;
  std::cerr << fmt::format("\r{} [{}{}] {:3}%", label_, std::string(static_cast<size_t>(filled), '#'),
                           std::string(static_cast<size_t>(30 - filled), '.'), percent)
            << std::flush;
}

std::string Table::to_string() const {
  std::vector<size_t> widths;
  for (const std::string& h : header_) widths.push_back(h.size());
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text;
    for (size_t c = 0; c < row.size(); ++c)
      text += c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  line(header_);
  for (const auto& row : rows_) line(row);
  return out;
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("model", options.model, "Model part")->required()->check(CLI::IsMember({"glm52-attention-pre"}));
  app.add_option("--config", options.config_path, "HF config.json (default: GLM-5.2)");
  app.add_option("--layer", options.layer, "Layer index; layers without an indexer run the shared-layer graph")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--hadamard", options.hadamard, "Rotate indexer q and k by H/sqrt(D) after RoPE");
  app.add_flag("--act-pow2-scale", options.act_pow2_scale, "Power-of-two activation scales");
  app.add_flag("--index-q-plain-scale", options.index_q_plain_scale,
               "Plain instead of power-of-two scales of indexer q");
  app.add_flag("--index-k-pow2-scale", options.index_k_pow2_scale, "Power-of-two scales of indexer k");
  app.add_flag("--mla-plain-scale", options.mla_plain_scale, "Plain instead of power-of-two scales in the MLA cache");
}

void add_batch_options(CLI::App& app, BatchOptions& options) {
  app.add_option("--m", options.m, "Tokens (rows) of the batch")->capture_default_str();
  app.add_option("--kv", options.kv, "Visible length of each request's last row, tokens")->capture_default_str();
  app.add_option("--requests", options.requests,
                 "Requests that the rows are spread over (default: 2, or 1 for a single row)")
      ->check(CLI::PositiveNumber);
}

std::vector<std::string> packer_names() {
  std::vector<std::string> names;
  for (const Packer p : kPackers) names.emplace_back(to_string(p));
  return names;
}

void add_plan_options(CLI::App& app, PlanOptions& options, const std::string& default_target) {
  options.target = default_target;
  app.add_option("--target", options.target, "Target preset: cpu, h200, h100, b300")->capture_default_str();
  app.add_option("--workers", options.workers, "Worker queues (default: the target's)")->check(CLI::Range(1U, 65536U));
  app.add_option("--packer", options.packer, "How tasks are put into queues; mega: insertion unless given")
      ->check(CLI::IsMember(packer_names()))
      ->capture_default_str();
  app.add_option("--finalizer", options.finalizer, "Split-K finalizers: in the last arriver, or tasks of their own")
      ->check(CLI::IsMember({"fused", "tasks"}))
      ->capture_default_str();
  app.add_option("--events", options.events, "How finely tasks wait: exactly, as the cost model likes, by gcd, by op")
      ->check(CLI::IsMember({"exact", "auto", "gcd", "whole"}))
      ->capture_default_str();
}

Result<Model> load_model(const ModelOptions& options) {
  Model model;
  if (!options.config_path.empty()) model.config = MEGARTP_TRY(glm52::load_config(options.config_path));
  MEGARTP_TRY(glm52::check_config(model.config));
  if (options.layer > model.config.num_hidden_layers)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--layer {}: the model has layers 0 to {} and the MTP layer {}", options.layer,
                                  model.config.num_hidden_layers - 1, model.config.num_hidden_layers));
  model.options.hadamard = options.hadamard;
  model.options.act_pow2_scale = options.act_pow2_scale;
  model.options.index_q_pow2_scale = !options.index_q_plain_scale;
  model.options.index_k_pow2_scale = options.index_k_pow2_scale;
  model.options.mla_pow2_scale = !options.mla_plain_scale;
  return model;
}

std::vector<Command> add_commands(CLI::App& root) {
  std::vector<Command> commands{add_run_command(root),          add_plan_command(root),  add_graph_command(root),
                                add_launch_command(root),       add_bench_command(root), add_disasm_command(root),
                                add_explain_fault_command(root)};
  commands.push_back(add_plan_diff_command(*root.get_subcommand("plan")));
  for (Command& c : add_weights_commands(root)) commands.push_back(std::move(c));
  for (Command& c : add_verify_commands(root)) commands.push_back(std::move(c));
  for (Command& c : add_trace_commands(root)) commands.push_back(std::move(c));
  commands.push_back(add_ops_command(root));
  commands.push_back(add_doctor_command(root));
  commands.push_back(add_version_command(root));
  commands.push_back(add_completion_command(root));
  return commands;
}

}  // namespace megartp::cli
