// The checkpoint of one layer: the user's, or a seeded one in the cache folder.
#pragma once

#include <string>

#include "cli/cli.h"
#include "models/glm52/weights.h"

namespace megartp::cli {

// From `path`; empty: a seeded checkpoint of this config and layer, made once (with a progress bar on stderr).
Result<glm52::Weights> load_layer_weights(const glm52::Config& config, int64_t layer, const std::string& path,
                                          const CommonOptions& common);

}  // namespace megartp::cli
