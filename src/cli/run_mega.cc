#include "cli/run_mega.h"

#include "backends/cuda_mega/mega_plan.h"
#include "backends/cuda_mega/prepare.h"

namespace megartp::cli {

void add_mega_options(CLI::App& app, MegaArgs& args) {
  app.add_flag("--ordinary-launch", args.is_ordinary,
               "mega: no cooperative launch; for a GPU that runs nothing else meanwhile");
}

void set_mega_defaults(PlanOptions& options, bool target_given, bool packer_given, uint32_t num_sms) {
  if (!packer_given) options.packer = to_string(MegaPlanOptions{}.packer);
  if (!target_given) options.target = "h200";
  options.finalizer = "tasks";
  options.num_sms = num_sms;
}

Result<std::unique_ptr<Executable>> prepare_mega(std::shared_ptr<const KernelPlan> plan,
                                                 const cuda_mega::MegaRunOptions& run, bool fuzz) {
  CudaMegaOptions options;
  options.run = run;
  if (fuzz) options.compile.more_options.emplace_back("-DMEGARTP_FUZZ=1");
  return prepare_cuda_mega(std::move(plan), options);
}

}  // namespace megartp::cli
