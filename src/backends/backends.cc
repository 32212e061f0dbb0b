#include "backends/backend.h"

#include "backends/cuda_common/driver.h"

namespace megartp {

std::vector<BackendInfo> backends() {
  const auto driver = cuda::driver();
  const bool has_gpu = driver && cuda::device_info(**driver, 0);
  return {{"cpu-threads", "worker threads walk the instruction tensor", true},
          {"cpu-reference", "whole ops in double precision: the oracle", true},
          {"serial", "CUDA graph: one kernel after another", has_gpu},
          {"pdl", "CUDA graph: the same with programmatic edges", has_gpu},
          {"dag", "CUDA graph: the true dependencies", has_gpu},
          {"cmp", "CUDA graph: the true dependencies with programmatic edges", has_gpu},
          {"mega", "the persistent kernel walks the instruction tensor", has_gpu}};
}

}  // namespace megartp
