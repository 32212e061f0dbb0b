// Do several backends, replayed at the same time on inputs that change, give the same bits?
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda_common/resources.h"
#include "backends/cuda_mega/mega_executable.h"
#include "codegen/compile_kernels.h"
#include "launch/launch_plan.h"
#include "models/glm52/layer_run.h"

namespace megartp::bench {

struct ReplayOptions {
  LaunchOptions launch;  // the mode comes from the list of modes
  uint64_t num_replays = 100;
  uint64_t seed = 1;
  // Device code with delays at random places (MEGARTP_FUZZ): late starts and early triggers.
  bool with_fuzz = false;
  // Also the persistent kernel, with this plan of the run's graph and shapes.
  std::shared_ptr<const KernelPlan> mega_plan;
  cuda_mega::MegaRunOptions mega_run;
  std::function<void(uint64_t done, uint64_t total)> progress;
  codegen::CompileOptions compile;
};

struct ReplayMismatch {
  uint64_t replay = 0;
  std::string backend, tensor;
  uint64_t num_words = 0, first_word = 0;  // of 4 bytes
};
struct ReplayReport {
  std::vector<std::string> backends;  // the first is what the others are compared with
  std::vector<std::string> tensors;   // outputs and states
  uint64_t num_replays = 0;
  std::vector<ReplayMismatch> mismatches;  // at most kMaxMismatches
};
inline constexpr size_t kMaxMismatches = 20;

// In every replay: x and residual get new signs, everything that is written is poisoned, all backends run at once on
// streams of their own, and their outputs and states are compared with those of the first, on the device. Stops after
// kMaxMismatches, and with an error when a run gives up. kUnsupported on a machine without a GPU.
Result<ReplayReport> check_replays(const glm52::LayerRun& run, std::span<const LaunchMode> modes,
                                   const ReplayOptions& options,
                                   std::shared_ptr<const cuda::Context> context = nullptr);
// The kernel that compares.
codegen::KernelRequest compare_kernel();

// Flips the sign bits of BF16 values by `seed`: other inputs of the same magnitudes.
void flip_signs(std::span<uint16_t> values, uint64_t seed);

}  // namespace megartp::bench
