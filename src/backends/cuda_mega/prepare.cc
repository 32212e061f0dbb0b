#include "backends/cuda_mega/prepare.h"

#include "backends/cuda_common/host_executable.h"
#include "codegen/mega_source.h"

namespace megartp {

Result<std::unique_ptr<Executable>> prepare_cuda_mega(std::shared_ptr<const KernelPlan> plan,
                                                      const CudaMegaOptions& options) {
  const std::vector<uint32_t> opcodes = codegen::mega_opcodes(*plan);
  // First, so that a plan that cannot run costs no compilation.
  MEGARTP_TRY(codegen::mega_kernel_request(opcodes));
  const cuda::DriverApi* api = MEGARTP_TRY(cuda::driver());
  auto context = MEGARTP_TRY(cuda::Context::open(*api, options.device));
  codegen::CompileOptions compile = options.compile;
  if (options.run.with_trace) compile.more_options.emplace_back("-DMEGARTP_TRACE=1");
  auto code = MEGARTP_TRY(cuda_mega::MegaCode::load(std::move(context), opcodes, compile));
  auto device = MEGARTP_TRY(cuda_mega::MegaExecutable::create(std::move(plan), std::move(code), options.run));
  return make_host_executable(std::move(device));
}

}  // namespace megartp
