// The persistent kernel, compiled for a set of ops and loaded on a device. Executables of all plans with these ops may
// share it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cuda_common/resources.h"
#include "codegen/compile_kernels.h"

namespace megartp::cuda_mega {

class MegaCode {
 public:
  // Compiles (or takes from the cache) and loads. `opcodes` as in MegaImage. options.arch is replaced by that of the
  // device; kUnsupported when it is not Hopper, and for opcodes without device op.
  static Result<std::shared_ptr<const MegaCode>> load(std::shared_ptr<const cuda::Context> context,
                                                      std::span<const uint32_t> opcodes,
                                                      codegen::CompileOptions options = {});
  // Loads what has been compiled: one kernel.
  static Result<std::shared_ptr<const MegaCode>> load(std::shared_ptr<const cuda::Context> context,
                                                      std::span<const uint32_t> opcodes,
                                                      codegen::CompiledKernels compiled);
  MegaCode() = default;
  ~MegaCode();
  MegaCode(const MegaCode&) = delete;
  MegaCode& operator=(const MegaCode&) = delete;

  const std::shared_ptr<const cuda::Context>& context() const { return context_; }
  cuda::FunctionHandle function() const { return function_; }
  const codegen::CompiledKernel& kernel() const { return compiled_.kernels[0]; }
  const codegen::CompileStats& stats() const { return compiled_.stats; }
  // CTAs that are resident at once: workers wait for each other, so a plan must not have more.
  uint32_t max_workers() const { return max_workers_; }
  // kUnsupported unless every one of these opcodes is in the code.
  Status check_has(std::span<const uint32_t> opcodes) const;

 private:
  Status load_module();

  std::shared_ptr<const cuda::Context> context_;
  std::vector<uint32_t> opcodes_;
  codegen::CompiledKernels compiled_;
  cuda::Module module_;
  cuda::FunctionHandle function_ = nullptr;
  uint32_t max_workers_ = 0;
};

}  // namespace megartp::cuda_mega
