#include "backends/cuda_common/driver.h"

#include <array>

#include <fmt/format.h>

#include "base/dynamic_library.h"

namespace megartp::cuda {
namespace {

// The symbol that a member of the table stands for, for messages: "mem_alloc(&p, n)" -> "cuMemAlloc_v2".
std::string_view symbol_of(std::string_view call) {
  const std::string_view member = call.substr(0, call.find('('));
#define MEGARTP_DRIVER_NAME(name, symbol, parameters) \
  if (member == #name) return #symbol;
  MEGARTP_DRIVER_FUNCTIONS(MEGARTP_DRIVER_NAME)
#undef MEGARTP_DRIVER_NAME
  return member;
}

ErrorCode code_of(DriverStatus status) {
  switch (status) {
    case kErrorOutOfMemory: return ErrorCode::kOutOfMemory;
    case kErrorNoDevice:
    case kErrorNoBinaryForGpu:
    case kErrorSystemDriverMismatch: return ErrorCode::kUnsupported;
    case kErrorLaunchTimeout: return ErrorCode::kTimeout;
    default: return ErrorCode::kDeviceError;
  }
}

Result<DriverApi> load() {
  const std::array<std::string, 1> names{"libcuda.so.1"};
  auto opened = DynamicLibrary::open("the NVIDIA driver's library libcuda.so.1", names);
  if (!opened) return tl::unexpected(std::move(opened).error());
  DriverApi api;
#define MEGARTP_DRIVER_LOAD(member, symbol_name, parameters) \
  api.member = reinterpret_cast<DriverStatus(*) parameters>(MEGARTP_TRY(opened->symbol(#symbol_name)));
  MEGARTP_DRIVER_FUNCTIONS(MEGARTP_DRIVER_LOAD)
#undef MEGARTP_DRIVER_LOAD
  MEGARTP_CUDA_TRY(api, init(0));
  return api;
}

}  // namespace

Result<const DriverApi*> driver() {
  static const Result<DriverApi> loaded = load();
  if (!loaded) return tl::unexpected(loaded.error());
  return &*loaded;
}

Status check(const DriverApi& api, DriverStatus status, std::string_view call) {
  if (status == kSuccess) return {};
  const char* name = nullptr;
  const char* sentence = nullptr;
  if (api.get_error_name == nullptr || api.get_error_name(status, &name) != kSuccess || name == nullptr)
    name = "unknown CUDA error";
  if (api.get_error_string == nullptr || api.get_error_string(status, &sentence) != kSuccess || sentence == nullptr)
    sentence = "no description";
  return make_error(code_of(status), fmt::format("{}: {} ({}): {}", symbol_of(call), name, status, sentence));
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Result<DeviceInfo> device_info(const DriverApi& api, int ordinal) {
  int count = 0;
  MEGARTP_CUDA_TRY(api, device_get_count(&count));
  if (ordinal < 0 || ordinal >= count)
    return make_error(ErrorCode::kNotFound, fmt::format("no GPU number {}: this machine has {}", ordinal, count));
  Device device = 0;
  MEGARTP_CUDA_TRY(api, device_get(&device, ordinal));
  DeviceInfo info;
  std::array<char, 256> name{};
  MEGARTP_CUDA_TRY(api, device_get_name(name.data(), static_cast<int>(name.size()) - 1, device));
  info.name = name.data();
  size_t bytes = 0;
  MEGARTP_CUDA_TRY(api, device_total_mem(&bytes, device));
  info.memory_bytes = bytes;
  const auto attribute = [&](int id) -> Result<int> {
    int value = 0;
    MEGARTP_CUDA_TRY(api, device_get_attribute(&value, id, device));
    return value;
  };
  info.compute_major = MEGARTP_TRY(attribute(kAttrComputeMajor));
  info.compute_minor = MEGARTP_TRY(attribute(kAttrComputeMinor));
  info.num_sms = MEGARTP_TRY(attribute(kAttrMultiprocessors));
  info.clock_khz = MEGARTP_TRY(attribute(kAttrClockKhz));
  info.l2_bytes = static_cast<uint64_t>(MEGARTP_TRY(attribute(kAttrL2Bytes)));
  info.smem_per_cta = static_cast<uint32_t>(MEGARTP_TRY(attribute(kAttrSmemPerCtaOptin)));
  info.smem_per_sm = static_cast<uint32_t>(MEGARTP_TRY(attribute(kAttrSmemPerSm)));
  return info;
}

}  // namespace megartp::cuda
