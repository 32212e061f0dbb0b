// What `megartp run` prints and writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "models/glm52/layer_run.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {

// The limit on calc_diff of each output against the reference.
inline constexpr double kMaxCalcDiff = 1e-6;

struct RunReport {
  std::string backend;
  std::shared_ptr<const KernelPlan> plan;
  RunStats stats;
  std::vector<double> samples_ns;
  bool checked = false;
  double reference_ns = 0;
  std::vector<glm52::TensorDiff> diffs;

  // Every output and state within kMaxCalcDiff (true when nothing was checked).
  bool passed() const;
};

Json report_json(const glm52::LayerRun& run, const RunReport& report);
void print_report(const glm52::LayerRun& run, const RunReport& report, const CommonOptions& common);

// residual, q_out, logits, index_k_cache, mla_kv_cache; with intermediates also gate, index_q, index_k, kv_latent, k_pe.
Status save_run_output(const glm52::LayerRun& run, const glm52::TensorMap& tensors, bool keep_intermediates,
                       const std::string& path);

// Hex digest of a config, for cache file names.
std::string config_fingerprint(const glm52::Config& config);

}  // namespace megartp::cli
