// The tensors of one executable in device memory: who owns each, where it is, and which have moved.
//
//   activations, workspaces   one allocation of ours, each at 256 bytes
//   arguments, weights,       the caller's address (bind), or memory of ours (upload, allocate_unbound)
//   states, outputs
//   packed weights            beside the plain ones, for kernels that want WeightLayout::kTiles64x128
//
// What a plan needs of each tensor is a list of TensorUse, which the backend makes. Calls that touch device memory must
// be made with the context current. Not thread-safe.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda_common/resources.h"
#include "megartp/op_graph.h"
#include "ops/device_kernel.h"

namespace megartp::cuda {

inline constexpr uint64_t kAnyOffset = ~uint64_t{0};

// What an executable does with one tensor.
struct TensorUse {
  ConcreteTensor tensor;
  bool is_private = false;           // the plan's own: no tensor of the graph
  bool is_used_plain = false;        // some kernel takes it as it is in the checkpoint
  bool is_packed = false;            // some kernel takes it in WeightLayout::kTiles64x128: an FP8 weight [N, K]
  bool is_zeroed = false;            // private ones: set to zero once
  std::vector<uint32_t> words = {};  // private ones, not empty: a constant, which nobody writes
  // Of tensors that are not external: bytes into the arena, where the plan says so.
  uint64_t arena_offset = kAnyOffset;

  bool is_external() const { return !is_private && tensor.storage != Storage::kActivation; }
};
// kInternal naming tensor and `user` unless it is a weight that can be packed.
Status check_packable(const ConcreteTensor& tensor, std::string_view user);

struct DeviceTensor {
  size_t num_bytes = 0;
  size_t num_packed_bytes = 0;  // 0: no kernel wants it packed
  bool is_external = false;
  bool is_used_plain = false;  // some kernel takes it as it is in the checkpoint
  bool has_changed = true;     // an address is new since take_changes()
  DevicePtr address = 0;
  DevicePtr packed = 0;
  DeviceBuffer own, own_packed;

  bool is_used() const { return is_used_plain || num_packed_bytes > 0; }
};

class DeviceTensors {
 public:
  // Allocates what is not external, zeroes the workspaces that ask for it and writes the constants.
  // Tensor ids are positions in `uses`.
  static Result<DeviceTensors> create(const DriverApi& api, std::vector<TensorUse> uses);

  // The caller's memory, which must outlive the runs and be aligned to 16 bytes. A weight that kernels want packed is
  // read, packed and written to memory of ours now: later changes of the caller's copy are not seen. Errors name the
  // tensor.
  Status bind(std::string_view name, DevicePtr address, size_t num_bytes);
  // The packed form of a weight, from packed_address() of another executable that outlives this one.
  Status bind_packed(std::string_view name, DevicePtr address, size_t num_bytes);
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
  DevicePtr address(TensorId id, WeightLayout layout = WeightLayout::kCheckpoint) const;
  // Which tensors have moved since the last call.
  std::vector<bool> take_changes();
  const DeviceTensor* find(std::string_view name) const;
  const std::vector<TensorUse>& uses() const { return uses_; }
  // Of ours, packed weights included.
  size_t num_owned_bytes() const;

 private:
  DeviceTensors(const DriverApi& api, std::vector<TensorUse> uses) : api_(&api), uses_(std::move(uses)) {}
  void measure();
  Status allocate_arena();
  Result<TensorId> find_external(std::string_view name, std::string_view action, size_t num_bytes) const;
  Status pack(TensorId id, std::span<const std::byte> data);
  void move_to(DevicePtr& place, DevicePtr address, DeviceTensor& tensor);

  const DriverApi* api_;
  std::vector<TensorUse> uses_;
  std::vector<DeviceTensor> tensors_;
  std::map<std::string_view, TensorId> by_name_;
  DeviceBuffer arena_;
};

}  // namespace megartp::cuda
