#include "codegen/param_layout.h"

#include <algorithm>
#include <utility>

namespace megartp::codegen {
namespace {

// Size and alignment.
std::pair<uint32_t, uint32_t> extent_of(DeviceParam::Kind kind) {
  switch (kind) {
    case DeviceParam::Kind::kTensorMap: return {kTensorMapBytes, kTensorMapAlignment};
    case DeviceParam::Kind::kPointer: return {8, 8};
    case DeviceParam::Kind::kU32:
    case DeviceParam::Kind::kF32: break;
  }
  return {4, 4};
}

uint32_t round_up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

ParamLayout param_layout(std::span<const DeviceParam> params) {
  ParamLayout layout;
  for (const DeviceParam& p : params) {
    const auto [bytes, alignment] = extent_of(p.kind);
    const uint32_t offset = round_up(layout.num_bytes, alignment);
    layout.offsets.push_back(offset);
    layout.num_bytes = offset + bytes;
    layout.alignment = std::max(layout.alignment, alignment);
  }
  layout.num_bytes = round_up(layout.num_bytes, layout.alignment);
  return layout;
}

}  // namespace megartp::codegen
