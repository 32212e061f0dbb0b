// Builds the DeviceKernel of a family: parameters in the order of the device struct, each with what the kernel does to
// its tensor. Used by the NAME_device.cc of the families.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/device_kernel.h"

namespace megartp::ops {

class KernelBuilder {
 public:
  using Means = DeviceAccess::Means;

  // `header` is relative to src/; `function` is a template of namespace megartp::device with its arguments, "$WAIT"
  // among them.
  KernelBuilder(std::string name, std::string header, std::string_view function) {
    kernel_.name = std::move(name);
    kernel_.header = std::move(header);
    kernel_.entry = fmt::format("megartp::device::{}", function);
  }

  // A pointer that is read before the wait: a weight or an argument.
  KernelBuilder& early(std::string name, TensorId tensor, Means means = Means::kGeneric,
                       WeightLayout layout = WeightLayout::kCheckpoint) {
    kernel_.params.push_back(DeviceParam::pointer(std::move(name), tensor, layout));
    return access(false, true, means);
  }
  // A pointer that is read after the wait.
  KernelBuilder& input(std::string name, TensorId tensor, Means means = Means::kGeneric) {
    kernel_.params.push_back(DeviceParam::pointer(std::move(name), tensor));
    return access(false, false, means);
  }
  KernelBuilder& output(std::string name, TensorId tensor) {
    kernel_.params.push_back(DeviceParam::pointer(std::move(name), tensor));
    return access(true, false, Means::kGeneric);
  }
  // A pointer that the struct has, but this instance does not follow.
  KernelBuilder& unused(std::string name, TensorId tensor) {
    kernel_.params.push_back(DeviceParam::pointer(std::move(name), tensor));
    return *this;
  }
  KernelBuilder& input_map(std::string name, TensorId tensor, const TensorMapSpec& map) {
    kernel_.params.push_back(DeviceParam::tensor_map(std::move(name), tensor, map));
    return access(false, false, Means::kTma);
  }
  KernelBuilder& early_map(std::string name, TensorId tensor, const TensorMapSpec& map) {
    kernel_.params.push_back(DeviceParam::tensor_map(std::move(name), tensor, map));
    return access(false, true, Means::kTma);
  }
  KernelBuilder& unused_map(std::string name, TensorId tensor, const TensorMapSpec& map) {
    kernel_.params.push_back(DeviceParam::tensor_map(std::move(name), tensor, map));
    return *this;
  }
  KernelBuilder& u32(std::string name, int64_t value) {
    kernel_.params.push_back(DeviceParam::u32(std::move(name), value));
    return *this;
  }
  KernelBuilder& f32(std::string name, double value) {
    kernel_.params.push_back(DeviceParam::f32(std::move(name), static_cast<float>(value)));
    return *this;
  }

  KernelBuilder& launch(int64_t grid_x, int64_t grid_y, int64_t block, int64_t smem_bytes = 0, int64_t cluster = 1) {
    kernel_.grid = {static_cast<uint32_t>(grid_x), static_cast<uint32_t>(grid_y), 1};
    kernel_.block = static_cast<uint32_t>(block);
    kernel_.smem_bytes = static_cast<uint32_t>(smem_bytes);
    kernel_.cluster = static_cast<uint32_t>(cluster);
    return *this;
  }
  KernelBuilder& cost(int64_t weight_bytes, int64_t other_bytes, int64_t flops) {
    kernel_.weight_bytes = static_cast<uint64_t>(weight_bytes);
    kernel_.other_bytes = static_cast<uint64_t>(other_bytes);
    kernel_.flops = static_cast<uint64_t>(flops);
    return *this;
  }
  KernelBuilder& triggers_late() {
    kernel_.triggers_at_start = false;
    return *this;
  }
  KernelBuilder& no_prologue() {
    kernel_.has_prologue = false;
    return *this;
  }
  DeviceKernel take() { return std::move(kernel_); }

 private:
  KernelBuilder& access(bool is_write, bool before_wait, Means means) {
    kernel_.accesses.push_back({static_cast<uint32_t>(kernel_.params.size() - 1), is_write, before_wait, means});
    return *this;
  }

  DeviceKernel kernel_;
};

// Grid of a generic kernel, which strides over its work: enough CTAs for all of it, at most eight an SM.
inline int64_t generic_grid(const DeviceContext& c, int64_t items, int64_t items_per_cta) {
  return std::clamp<int64_t>(ceil_div(items, items_per_cta), 1, int64_t{c.target().num_sms} * 8);
}
inline constexpr int64_t kGenericThreads = 256;
inline constexpr int64_t kGenericWarps = kGenericThreads / 32;

// What grids and the words of the parameter structs can count: rows, and elements of one row.
inline constexpr int64_t kMaxGridY = 65535;
inline constexpr int64_t kMaxDeviceDim = int64_t{1} << 30;

// kUnsupported that names op, tensor and shape, when a dim is more than the kernels' 32-bit words hold.
Status check_device_dims(const DeviceContext& c);

}  // namespace megartp::ops
