// What the compiler is given for one kernel: a translation unit of a few lines, and the headers that it reaches.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/nvrtc.h"
#include "ops/device_kernel.h"

namespace megartp::codegen {

// One instance of a kernel template: all that decides its code. Two kernels of a plan that differ in addresses, grid or
// values only have equal requests.
struct KernelRequest {
  std::string name;    // for messages; not compared
  std::string header;  // "ops/qkv_a/device/qkv_a.cuh"
  std::string entry;   // without "$WAIT"; qualified from the global namespace
  uint32_t param_bytes = 0, param_alignment = 1;
  std::vector<std::string> more_headers = {};  // what else the entry names things of
};

// The request of a kernel that waits at `wait`.
KernelRequest kernel_request(const DeviceKernel& kernel, DeviceWait wait);

// Includes the header and checks that the kernel's one parameter has the size and alignment that the host packs.
std::string kernel_source(const KernelRequest& request);

// The headers that `source` includes, directly or not, sorted by name. Conditional includes count. `more` goes before
// the embedded headers, those before the standard ones. Names that are nowhere are left out: the compiler will tell.
std::vector<SourceHeader> reached_headers(std::string_view source, std::span<const SourceHeader> more = {});

}  // namespace megartp::codegen
