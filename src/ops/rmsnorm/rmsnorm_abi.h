// Spec and payload of `rmsnorm`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct RmsnormSpec {
  uint32_t cols;
  float eps;
};

// Payload: row.
struct RmsnormPayload {
  uint32_t row;
};

// Operand row.
enum RmsnormSlot : uint32_t { kRmsnormX, kRmsnormW, kRmsnormOut };

}  // namespace megartp::ops
