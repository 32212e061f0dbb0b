// What must hold for every kernel description, whatever the family, and the source that compares it with its device
// code.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/shape_table.h"

namespace megartp::test {

// The template arguments of the entry's GemmShape.
struct ShapeArgs {
  std::string text;  // "megartp::device::GemmShape<...>"
  uint32_t tile_n = 0, tile_m = 0, blocks = 0, stages = 0, in_flight = 0;
  bool is_tiled = false;
};
std::optional<ShapeArgs> shape_args(const DeviceKernel& kernel);

// The value of a word, or of a float's bits; fails the test when there is none of this name.
uint32_t word(const DeviceKernel& kernel, std::string_view name);

// Complaints about one kernel: launch sizes, maps, layouts, accesses.
std::vector<std::string> check_kernel(const TestDeviceContext& context, const DeviceKernel& kernel);
// Complaints about all kernels of an op together: what is read and written.
std::vector<std::string> check_op_kernels(const TestDeviceContext& context, const std::vector<DeviceKernel>& kernels);

// CUDA C++ that instantiates the kernels (all of one header) for DeviceWait::kPrefetch and asserts at compile time that
// each one's struct has these parameters at these offsets with these types, and that its shared memory and threads are
// those of the description.
std::string compile_source(const std::vector<DeviceKernel>& kernels);

// "$WAIT" replaced.
std::string entry_of(const DeviceKernel& kernel, DeviceWait wait);

}  // namespace megartp::test
