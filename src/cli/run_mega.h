// What `megartp run` does for the backend mega: the persistent kernel on this machine's GPU.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cuda_mega/mega_executable.h"
#include "cli/cli.h"

namespace megartp::cli {

struct MegaArgs {
  bool is_ordinary = false;  // not a cooperative launch
};
void add_mega_options(CLI::App& app, MegaArgs& args);

// What the plan is made for unless the user says otherwise: a GPU of so many SMs, finalizers that are tasks.
void set_mega_defaults(PlanOptions& options, bool target_given, bool packer_given, uint32_t num_sms);

Result<std::unique_ptr<Executable>> prepare_mega(std::shared_ptr<const KernelPlan> plan,
                                                 const cuda_mega::MegaRunOptions& run, bool fuzz);

}  // namespace megartp::cli
