#include "cli/layer_weights.h"

#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "base/env.h"
#include "cli/run_output.h"

namespace megartp::cli {
namespace {

// The seeded checkpoint of this config and layer, made once in the cache folder.
Result<std::string> cached_weights(const glm52::Config& config, int64_t layer, const CommonOptions& common) {
  constexpr uint64_t kSeed = 1;
  const std::string dir = MEGARTP_TRY(env_cache_dir());
  std::error_code ec;
  std::filesystem::create_directories(dir, ec);
  if (ec) return make_error(ErrorCode::kIo, fmt::format("cannot create the cache folder '{}': {}", dir, ec.message()));
  std::string name =
      fmt::format("{}/weights-v1-{}-layer{}-seed{}.safetensors", dir, config_fingerprint(config), layer, kSeed);
  if (std::filesystem::exists(name, ec)) return name;
  if (!common.quiet) std::cerr << fmt::format("Making a seeded checkpoint of layer {} once: {}\n", layer, name);
  ProgressBar bar("weights", common);
  MEGARTP_TRY(glm52::synth_weights(config, {layer}, kSeed, name,
                                   [&](uint64_t done, uint64_t total) { bar.update(done, total); }));
  return name;
}

}  // namespace

Result<glm52::Weights> load_layer_weights(const glm52::Config& config, int64_t layer, const std::string& path,
                                          const CommonOptions& common) {
  const std::string file = path.empty() ? MEGARTP_TRY(cached_weights(config, layer, common)) : path;
  if (common.verbose) std::cerr << "weights: " << file << "\n";
  return glm52::load_weights(config, layer, file);
}

}  // namespace megartp::cli
