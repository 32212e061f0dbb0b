// The tensors of one executable in device memory: who owns each, where it is, and which have moved.
//
//   activations, workspaces   one allocation of ours, each at 256 bytes
//   arguments, weights,       the caller's address (bind), or memory of ours (upload, allocate_unbound)
//   states, outputs
//   packed weights            beside the plain ones, for kernels that want WeightLayout::kTiles64x128
//
// Calls that touch device memory must be made with the context current. Not thread-safe.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda_common/resources.h"
#include "launch/launch_plan.h"

namespace megartp::cuda_graph {

struct DeviceTensor {
  size_t num_bytes = 0;
  size_t num_packed_bytes = 0;  // 0: no kernel wants it packed
  bool is_external = false;
  bool is_used_plain = false;  // some kernel takes it as it is in the checkpoint
  bool has_changed = true;     // an address is new since take_changes()
  cuda::DevicePtr address = 0;
  cuda::DevicePtr packed = 0;
  cuda::DeviceBuffer own, own_packed;

  bool is_used() const { return is_used_plain || num_packed_bytes > 0; }
};

class DeviceTensors {
 public:
  // Allocates what is not external, zeroes the workspaces that ask for it and writes the constants.
  static Result<DeviceTensors> create(const cuda::DriverApi& api, const LaunchPlan& plan);

  // The caller's memory, which must outlive the runs and be aligned to 16 bytes. A weight that kernels want packed is
  // read, packed and written to memory of ours now: later changes of the caller's copy are not seen. Errors name the
  // tensor.
  Status bind(std::string_view name, cuda::DevicePtr address, size_t num_bytes);
  // The packed form of a weight, from packed_address() of another executable that outlives this one.
  Status bind_packed(std::string_view name, cuda::DevicePtr address, size_t num_bytes);
  // Copies host data in, to memory of ours unless the tensor is bound. The context must not be running what uses it.
  Status upload(std::string_view name, std::span<const std::byte> data);
  // Waits for everything that the context does, then copies. Not for weights that exist only packed.
  Status download(std::string_view name, std::span<std::byte> data) const;
  // Memory of ours, zeroed, for every external tensor that is used and has no address.
  Status allocate_unbound();
  // Fills activations, workspaces (not those that started as zero, nor constants) and
  // outputs with 0xff: NaN in every float format.
  Status poison() const;

  // kInvalidArgument naming the first tensor that is used and has no address.
  Status check_complete() const;
  cuda::DevicePtr address(const DeviceParam& param) const;
  // Which tensors have moved since the last call.
  std::vector<bool> take_changes();
  const DeviceTensor* find(std::string_view name) const;
  // Of ours, packed weights included.
  size_t num_owned_bytes() const;

 private:
  DeviceTensors(const cuda::DriverApi& api, const LaunchPlan& plan) : api_(&api), plan_(&plan) {}
  Status measure();
  Status allocate_arena();
  Result<TensorId> find_external(std::string_view name, std::string_view action, size_t num_bytes) const;
  Status pack(TensorId id, std::span<const std::byte> data);
  void move_to(cuda::DevicePtr& place, cuda::DevicePtr address, DeviceTensor& tensor);

  const cuda::DriverApi* api_;
  const LaunchPlan* plan_;
  std::vector<DeviceTensor> tensors_;
  std::map<std::string_view, TensorId> by_name_;
  cuda::DeviceBuffer arena_;
};

}  // namespace megartp::cuda_graph
