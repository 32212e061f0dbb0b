// The parameter struct of one kernel as the device wants it.
#pragma once

#include <vector>

#include "backends/cuda_common/device_tensors.h"
#include "backends/cuda_common/driver.h"
#include "codegen/param_layout.h"

namespace megartp::cuda_graph {

class KernelParams {
 public:
  // Zeroed bytes, at the alignment of a tensor map.
  explicit KernelParams(const DeviceKernel& kernel);

  // Writes values, addresses and tensor maps. Errors name kernel, parameter and tensor.
  Status fill(const cuda::DriverApi& api, const DeviceKernel& kernel, const cuda::DeviceTensors& tensors);
  // Whether a parameter holds the address of one of these.
  static bool uses(const DeviceKernel& kernel, const std::vector<bool>& tensors);

  std::span<const std::byte> bytes() const;
  // What the driver takes as the array of parameters: one pointer, to the struct. Valid while this lives and is not
  // moved.
  void** pointers() { return layout_.num_bytes == 0 ? nullptr : &pointer_; }

  KernelParams(KernelParams&& o) noexcept;
  KernelParams& operator=(KernelParams&&) = delete;
  KernelParams(const KernelParams&) = delete;
  KernelParams& operator=(const KernelParams&) = delete;
  ~KernelParams() = default;

 private:
  codegen::ParamLayout layout_;
  std::vector<cuda::TensorMap> storage_;  // for its alignment
  void* pointer_ = nullptr;
};

}  // namespace megartp::cuda_graph
