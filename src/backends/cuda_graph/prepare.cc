#include "backends/cuda_graph/prepare.h"

#include "backends/cuda_common/host_executable.h"
#include "backends/cuda_graph/cuda_graph_executable.h"

namespace megartp {

Result<std::unique_ptr<Executable>> prepare_cuda_graph(std::shared_ptr<const LaunchPlan> plan,
                                                       const CudaGraphOptions& options) {
  const cuda::DriverApi* api = MEGARTP_TRY(cuda::driver());
  auto context = MEGARTP_TRY(cuda::Context::open(*api, options.device));
  auto code = MEGARTP_TRY(cuda_graph::LoadedCode::load(std::move(context), *plan, options.compile));
  auto device = MEGARTP_TRY(cuda_graph::CudaGraphExecutable::create(std::move(plan), std::move(code)));
  return make_host_executable(std::move(device));
}

}  // namespace megartp
