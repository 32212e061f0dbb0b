// Several copies of a layer's weights in device memory, so that one after the other is cold.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/cuda_common/device_executable.h"
#include "models/glm52/inputs.h"
#include "models/glm52/weights.h"

namespace megartp::bench {

class WeightCopies {
 public:
  WeightCopies(std::shared_ptr<const cuda::Context> context, const glm52::Weights& weights, uint32_t num_copies)
      : context_(std::move(context)), weights_(&weights), num_copies_(num_copies) {}
  ~WeightCopies();
  WeightCopies(WeightCopies&&) = default;

  // Binds copy `i` of every weight that the executable uses, in the form that its kernels want. What no executable has
  // asked for before is packed and uploaded first.
  Status bind(cuda::DeviceExecutable& executable, uint32_t i);
  // The same, then inputs and states of its own, and all that is left before it can run.
  Status make_ready(cuda::DeviceExecutable& executable, uint32_t i, const glm52::Inputs& inputs);
  uint32_t num_copies() const { return num_copies_; }
  uint64_t bytes_per_copy() const;  // of what was bound so far

 private:
  using Copies = std::vector<cuda::DeviceBuffer>;
  Result<const Copies*> plain(const std::string& name);
  Result<const Copies*> packed(const std::string& name, int64_t n, int64_t k);
  Result<Copies> upload(std::span<const std::byte> data);

  std::shared_ptr<const cuda::Context> context_;
  const glm52::Weights* weights_;
  uint32_t num_copies_;
  std::map<std::string, Copies, std::less<>> plain_, packed_;
};

}  // namespace megartp::bench
