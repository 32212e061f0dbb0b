// The compiled kernels of a plan, loaded on a device. Several executables of plans with the same kernels may share it.
#pragma once

#include <memory>
#include <vector>

#include "backends/cuda_common/resources.h"
#include "codegen/compile_kernels.h"
#include "codegen/param_layout.h"
#include "launch/launch_plan.h"

namespace megartp::cuda_graph {

// How much of an SM's 256 KiB goes to shared memory rather than L1, in percent of what is possible; -1: the driver
// decides for each kernel. An SM changes its division only when it is empty, so CTAs of kernels with different
// divisions do not stand side by side: with one division for all, a consumer can enter beside its producer. Not
// measured yet.
inline constexpr int kSmemCarveoutPercent = 100;

class LoadedCode {
 public:
  // Compiles (or takes from the cache) and loads. options.arch is replaced by that of the device; kUnsupported when the
  // device is neither Hopper nor a Blackwell of compute capability 10.0.
  static Result<std::shared_ptr<const LoadedCode>> load(std::shared_ptr<const cuda::Context> context,
                                                        const LaunchPlan& plan, codegen::CompileOptions options = {},
                                                        int smem_carveout_percent = kSmemCarveoutPercent);
  // Loads what has been compiled: one request per kernel of the plan, in order.
  static Result<std::shared_ptr<const LoadedCode>> load(std::shared_ptr<const cuda::Context> context,
                                                        const LaunchPlan& plan, codegen::CompiledKernels compiled,
                                                        int smem_carveout_percent = kSmemCarveoutPercent);
  LoadedCode() = default;
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  const cuda::Context& context() const { return *context_; }
  const std::shared_ptr<const cuda::Context>& shared_context() const { return context_; }
  cuda::FunctionHandle function(uint32_t kernel) const { return functions_[compiled_.index_of_request[kernel]]; }
  const codegen::CompiledKernel& code(uint32_t kernel) const {
    return compiled_.kernels[compiled_.index_of_request[kernel]];
  }
  const codegen::CompiledKernels& compiled() const { return compiled_; }
  size_t num_kernels() const { return compiled_.index_of_request.size(); }

 private:
  Status load_modules(const LaunchPlan& plan, int smem_carveout_percent);

  std::shared_ptr<const cuda::Context> context_;
  codegen::CompiledKernels compiled_;
  std::vector<cuda::Module> modules_;  // as compiled_.kernels
  std::vector<cuda::FunctionHandle> functions_;
};

// The requests of a plan's kernels, in order.
std::vector<codegen::KernelRequest> kernel_requests(const LaunchPlan& plan);

}  // namespace megartp::cuda_graph
