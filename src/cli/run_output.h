// What `megartp run` prints and writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "models/glm52/layer_run.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {

// Limits on calc_diff. Of each op against its reference on the same inputs: only the order of sums differs.
inline constexpr double kMaxOpDiff = 1e-6;
// Of each output against a whole reference run. An FP8 code that rounds the other way moves everything behind it, so
// how far two sound runs differ depends on the data (1e-14 to 3e-6 seen); 5e-6 is what FlashMLA and DeepGEMM ask of a
// quantised reference.
inline constexpr double kMaxOutputDiff = 5e-6;
// On a GPU the FP8 tensor cores add with fewer bits than fp32, so more codes round the other way: 1e-5 of an op, where
// 1e-5 was seen; of a whole run 1e-3, DeepGEMM's figure for logits behind a quantisation that is not shared
// (docs/decisions/0003).
inline constexpr double kMaxGpuOpDiff = 1e-5;
inline constexpr double kMaxGpuOutputDiff = 1e-3;

struct RunReport {
  std::string backend;
  std::shared_ptr<const KernelPlan> plan;
  RunStats stats;
  std::vector<double> samples_ns;
  bool checked = false;
  double reference_ns = 0;
  std::vector<glm52::TensorDiff> op_diffs;  // each op on the same inputs
  std::vector<glm52::TensorDiff> diffs;     // whole run against whole run

  double op_limit() const;
  double output_limit() const;
  // Every op within op_limit() and every output and state within output_limit() (true when nothing was checked).
  bool passed() const;
};

Json report_json(const glm52::LayerRun& run, const RunReport& report);
void print_report(const glm52::LayerRun& run, const RunReport& report, const CommonOptions& common);

// residual, q_out, logits, index_k_cache, mla_kv_cache; with intermediates also gate, index_q, index_k, kv_latent,
// k_pe.
Status save_run_output(const glm52::LayerRun& run, const glm52::TensorMap& tensors, bool keep_intermediates,
                       const std::string& path);

// Hex digest of a config, for cache file names.
std::string config_fingerprint(const glm52::Config& config);

}  // namespace megartp::cli
