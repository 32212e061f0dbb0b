// What `megartp run` does for the backends that are CUDA graphs: serial, pdl, dag, cmp; and for replays.
#pragma once

#include <memory>
#include <string>

#include "bench/cold_trace.h"
#include "bench/replay_check.h"
#include "cli/launch_options.h"
#include "models/glm52/layer_run.h"

namespace megartp::cli {

bool is_launch_backend(std::string_view backend);
// SMs of this machine's GPU. kUnsupported, with a sentence that says what is missing, where no GPU can be used.
Result<uint32_t> check_gpu();
// For this machine's GPU.
Result<std::shared_ptr<const LaunchPlan>> make_launch_plan(const glm52::LayerRun& run, const std::string& backend,
                                                           const LaunchArgs& args);
Result<std::unique_ptr<Executable>> prepare_launch(const glm52::LayerRun& run, const std::string& backend,
                                                   const LaunchArgs& args, bool fuzz, const CommonOptions& common);
// One cold replay of the backend, of which every CTA's times go to a CSV file; with `json` a summary into it, else a
// table to stdout.
Status trace_kernels(const glm52::LayerRun& run, const std::string& backend, const LaunchArgs& args,
                     const std::string& file, Json* json);
struct ReplayArgs {
  int64_t num_replays = 0;
  uint64_t seed = 1;
  bool fuzz = false;
  std::shared_ptr<const KernelPlan> mega_plan;  // not null: the persistent kernel too
};
// All four backends against each other, and perhaps mega.
Result<bench::ReplayReport> replay_backends(const glm52::LayerRun& run, const LaunchArgs& launch,
                                            const ReplayArgs& args, const CommonOptions& common);
Json replays_json(const bench::ReplayReport& report);
void print_replays(const bench::ReplayReport& report);

}  // namespace megartp::cli
