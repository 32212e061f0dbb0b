// megartp weights synth | inspect.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include "cli/cli.h"
#include "io/safetensors.h"
#include "models/glm52/weights.h"

namespace megartp::cli {
namespace {

struct SynthArgs {
  CommonOptions common;
  std::string config_path;
  std::string layers = "6";
  uint64_t seed = 1;
  std::string output;
};

bool parse_index(std::string_view text, int64_t& out) {
  if (text.empty() || text.size() > 9) return false;
  out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    out = out * 10 + (c - '0');
  }
  return true;
}

// "6", "0-3,6,10", "all".
Result<std::vector<int64_t>> parse_layers(const std::string& text, int64_t num_layers) {
  std::vector<int64_t> layers;
  const auto bad = [&](std::string_view item) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--layers '{}': '{}' is not a layer or range of 0 to {}", text, item, num_layers));
  };
  if (text == "all") {
    for (int64_t i = 0; i < num_layers; ++i) layers.push_back(i);
    return layers;
  }
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, comma - at);
    const size_t dash = item.find('-');
    int64_t first = 0;
    int64_t last = 0;
    const bool ok = dash == std::string_view::npos
                        ? parse_index(item, first) && parse_index(item, last)
                        : parse_index(item.substr(0, dash), first) && parse_index(item.substr(dash + 1), last);
    if (!ok || first > last || last > num_layers) return bad(item);
    for (int64_t i = first; i <= last; ++i)
      if (std::find(layers.begin(), layers.end(), i) == layers.end()) layers.push_back(i);
    at = comma + 1;
  }
  return layers;
}

int run_synth(const SynthArgs& a) {
  const char* command = "weights synth";
  if (a.output == "-")
    return print_error(
        Error{ErrorCode::kInvalidArgument, "weights synth: -o needs a file; a checkpoint is not written to stdout"},
        a.common, command);
  glm52::Config config;
  if (!a.config_path.empty()) config = value_or_exit(glm52::load_config(a.config_path), a.common, command);
  const auto layers = value_or_exit(parse_layers(a.layers, config.num_hidden_layers), a.common, command);
  {
    ProgressBar bar("weights", a.common);
    value_or_exit(glm52::synth_weights(config, layers, a.seed, a.output,
                                       [&](uint64_t done, uint64_t total) { bar.update(done, total); }),
                  a.common, command);
  }
  const auto bytes = static_cast<uint64_t>(std::filesystem::file_size(a.output));
  if (a.common.json) {
    Json j;
    j["path"] = a.output;
    j["bytes"] = bytes;
    j["layers"] = layers;
    j["seed"] = a.seed;
    return print_json("weights-synth", std::move(j));
  }
  if (!a.common.quiet)
    std::cout << fmt::format("{}: {} layer{}, {:.1f} MB, seed {}\n", a.output, layers.size(),
                             layers.size() == 1 ? "" : "s", static_cast<double>(bytes) / 1e6, a.seed);
  return 0;
}

struct InspectArgs {
  CommonOptions common;
  std::string file;
};

int run_inspect(const InspectArgs& a) {
  const SafetensorsFile file = value_or_exit(SafetensorsFile::open(a.file), a.common, "weights inspect");
  uint64_t total = 0;
  for (const TensorView& t : file.tensors()) total += t.num_bytes;
  if (a.common.json) {
    Json j;
    j["path"] = a.file;
    j["bytes"] = total;
    j["metadata"] = file.metadata();
    j["tensors"] = Json::array();
    for (const TensorView& t : file.tensors())
      j["tensors"].push_back(
          {{"name", t.name}, {"dtype", to_string(t.dtype)}, {"shape", t.dims}, {"bytes", t.num_bytes}});
    return print_json("weights-inspect", std::move(j));
  }
  Table table({"tensor", "dtype", "shape", "bytes"});
  for (const TensorView& t : file.tensors())
    table.add_row({t.name, std::string(to_string(t.dtype)), to_string(t.dims), std::to_string(t.num_bytes)});
  std::cout << table.to_string() << fmt::format("{} tensors, {} bytes\n", file.tensors().size(), total);
  return 0;
}

}  // namespace

std::vector<Command> add_weights_commands(CLI::App& root) {
  CLI::App* weights = root.add_subcommand("weights", "Make or look at checkpoints (safetensors, HF tensor names)");
  weights->require_subcommand(1);

  auto synth = std::make_shared<SynthArgs>();
  CLI::App* synth_app = weights->add_subcommand("synth", "Write a seeded checkpoint");
  add_common_options(*synth_app, synth->common);
  synth_app->add_option("--config", synth->config_path, "HF config.json (default: GLM-5.2)");
  synth_app->add_option("--layers", synth->layers, "Layers: 6, 0-3,6 or all")->capture_default_str();
  synth_app->add_option("--seed", synth->seed, "Seed")->capture_default_str();
  synth_app->add_option("-o,--output", synth->output, "File to write")->required();
  synth_app->footer("Example:\n  megartp weights synth --layers 6 -o layer6.safetensors");

  auto inspect = std::make_shared<InspectArgs>();
  CLI::App* inspect_app = weights->add_subcommand("inspect", "List the tensors of a safetensors file");
  add_common_options(*inspect_app, inspect->common);
  inspect_app->add_option("file", inspect->file, "safetensors file")->required();
  return {{synth_app, [synth] { return run_synth(*synth); }},
          {inspect_app, [inspect] { return run_inspect(*inspect); }}};
}

}  // namespace megartp::cli
