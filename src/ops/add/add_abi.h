// Spec and payload of `add`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct AddSpec {
  uint32_t cols;
};

// Payload: row.
struct AddPayload {
  uint32_t row;
};

// Operand row.
enum AddSlot : uint32_t { kAddA, kAddB, kAddOut };

}  // namespace megartp::ops
