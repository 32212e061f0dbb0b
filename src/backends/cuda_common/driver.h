// The CUDA driver, loaded when first asked for, and what its errors become.
#pragma once

#include <string>
#include <string_view>

#include "backends/cuda_common/driver_abi.h"
#include "megartp/error.h"

namespace megartp::cuda {

// libcuda.so.1, loaded and initialised once for the process; later calls return the same table or the same error.
// kUnsupported, with a sentence that says what is missing: no driver, one that is too old, or one that finds no device.
// Thread-safe.
Result<const DriverApi*> driver();

// {} for success; otherwise an Error that names the call, CUDA's name of the error and its sentence.
// kOutOfMemory, kUnsupported (no device, no code for this device), kTimeout and kDeviceError for all else.
Status check(const DriverApi& api, DriverStatus status, std::string_view call);

// "13.0" for 13000.
std::string version_text(int version);

// What there is to know about a device before it is used.
struct DeviceInfo {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int num_sms = 0;
  int clock_khz = 0;
  uint64_t memory_bytes = 0;
  uint64_t l2_bytes = 0;
  uint32_t smem_per_cta = 0, smem_per_sm = 0;
};
// kNotFound when there are not so many devices.
Result<DeviceInfo> device_info(const DriverApi& api, int ordinal);

}  // namespace megartp::cuda

// Makes the call on `api` and returns from the enclosing function when it fails: MEGARTP_CUDA_TRY(api, mem_free(ptr)).
#define MEGARTP_CUDA_TRY(api, call) MEGARTP_TRY(::megartp::cuda::check((api), (api).call, #call))
