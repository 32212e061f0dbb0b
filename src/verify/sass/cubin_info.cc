#include "verify/sass/cubin_info.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::sass {
namespace {

enum Attribute : uint8_t {
  kMaxThreads = 0x05,
  kParamBank = 0x0a,
  kRequiredThreads = 0x10,
  kFrameBytes = 0x11,
  kParamInfo = 0x17,
  kExitOffsets = 0x1c,
  kRegisterCount = 0x2f,
  kBranchTargets = 0x34,
  kLargeParamInfo = 0x45,  // in place of kParamInfo in kernels with more than 4 KiB of parameters
};

constexpr uint8_t kFormatSized = 4;

tl::unexpected<Error> malformed(const ElfBytes& section, uint64_t offset, std::string what) {
  return make_error(ErrorCode::kParse, fmt::format("{}, offset {:#x}: {}", section.name(), offset, what));
}

// Groups of: offset of the branch, a reserved word, count, targets.
Status read_branch_targets(const ElfBytes& value, CubinKernel& kernel) {
  uint64_t at = 0;
  while (at < value.size()) {
    if (value.size() - at < 12) return malformed(value, at, "a list of branch targets is cut off");
    const auto branch = value.at<uint32_t>(at);
    const auto count = value.at<uint32_t>(at + 8);
    at += 12;
    if (count > (value.size() - at) / 4)
      return malformed(value, at, fmt::format("{} branch targets do not fit", count));
    std::vector<uint32_t>& targets = kernel.branch_targets[branch];
    for (uint32_t i = 0; i < count; ++i, at += 4) targets.push_back(value.at<uint32_t>(at));
  }
  return {};
}

uint64_t thread_product(const ElfBytes& value) {
  const auto x = uint64_t{value.at<uint32_t>(0)};
  const auto y = uint64_t{value.at<uint32_t>(4)};
  const auto z = uint64_t{value.at<uint32_t>(8)};
  constexpr uint64_t kMaxDim = 1024;
  return std::min(x, kMaxDim) * std::min(y, kMaxDim) * std::min(z, kMaxDim);
}

Status read_kernel_attribute(uint8_t attribute, const ElfBytes& value, uint64_t offset, CubinKernel& kernel) {
  const auto need = [&](uint64_t bytes, const char* name) -> Status {
    if (value.size() >= bytes) return {};
    return malformed(value, offset, fmt::format("{} of {} bytes, expected {}", name, value.size(), bytes));
  };
  switch (attribute) {
    case kParamInfo: {
      MEGARTP_TRY(need(12, "parameter description"));
      KernelParam p;
      p.ordinal = value.at<uint16_t>(4);
      p.offset = value.at<uint16_t>(6);
      p.num_bytes = value.at<uint32_t>(8) >> 18;
      kernel.params.push_back(p);
      return {};
    }
    case kLargeParamInfo: {
      MEGARTP_TRY(need(12, "parameter description"));
      KernelParam p;
      p.ordinal = value.at<uint16_t>(4);
      p.offset = value.at<uint16_t>(6);
      p.num_bytes = value.at<uint32_t>(8);
      kernel.params.push_back(p);
      return {};
    }
    case kParamBank:
      MEGARTP_TRY(need(8, "description of the parameter block"));
      kernel.param_base = value.at<uint16_t>(4);
      kernel.param_bytes = value.at<uint16_t>(6);
      return {};
    case kMaxThreads:
    case kRequiredThreads:
      MEGARTP_TRY(need(12, "thread limit"));
      kernel.max_threads = thread_product(value);
      return {};
    case kExitOffsets:
      for (uint64_t at = 0; at + 4 <= value.size(); at += 4) kernel.exit_offsets.push_back(value.at<uint32_t>(at));
      return {};
    case kBranchTargets: return read_branch_targets(value, kernel);
    default: return {};
  }
}

}  // namespace

Status read_info_section(const ElfBytes& section, CubinKernel* owner,
                         const std::function<CubinKernel*(uint32_t)>& kernel_of_symbol) {
  uint64_t at = 0;
  while (at < section.size()) {
    if (section.size() - at < 4) return malformed(section, at, "an attribute is cut off");
    const auto format = section.at<uint8_t>(at);
    const auto attribute = section.at<uint8_t>(at + 1);
    if (format == 0 || format > kFormatSized)
      return malformed(section, at, fmt::format("unknown attribute format {}", format));
    const uint64_t begin = at + 4;
    const uint64_t bytes = format == kFormatSized ? section.at<uint16_t>(at + 2) : 0;
    const ElfBytes value = MEGARTP_TRY(section.part(begin, bytes, section.name()));
    if (format == kFormatSized && owner == nullptr && value.size() >= 8) {
      if (CubinKernel* kernel = kernel_of_symbol(value.at<uint32_t>(0)); kernel != nullptr) {
        if (attribute == kRegisterCount) kernel->num_registers = value.at<uint32_t>(4);
        if (attribute == kFrameBytes) kernel->frame_bytes = value.at<uint32_t>(4);
      }
    } else if (format == kFormatSized && owner != nullptr) {
      MEGARTP_TRY(read_kernel_attribute(attribute, value, at, *owner));
    }
    at = begin + bytes;
  }
  return {};
}

}  // namespace megartp::sass
