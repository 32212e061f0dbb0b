// Spec and payload of `add_rmsnorm_quant`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct RmsnormQuantSpec {
  uint32_t cols;
  float eps;
  uint32_t pow2_scale;  // 0 or 1
};

// A tile norms a row, all of it, and writes a part: whole groups of 128 columns, the row's last of which may be
// shorter.
struct RmsnormQuantPayload {
  uint32_t row;
  uint32_t col_begin;
  uint32_t col_count;
};
inline constexpr uint32_t kRmsnormQuantPayloadWords = 3;

// What events count: the FP8 result (with scale and residual) and the BF16 norm are published apart, because different
// ops wait for them.
inline constexpr uint8_t kRmsnormQuantPublishQ = 0;
inline constexpr uint8_t kRmsnormQuantPublishY = 1;

// Operand row.
enum RmsnormQuantSlot : uint32_t {
  kRmsnormQuantX,
  kRmsnormQuantResidualIn,
  kRmsnormQuantW,
  kRmsnormQuantResidual,
  kRmsnormQuantY,
  kRmsnormQuantQ,
  kRmsnormQuantScale,
};

}  // namespace megartp::ops
