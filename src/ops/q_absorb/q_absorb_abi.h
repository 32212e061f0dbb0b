// Spec, payload and operand row of `q_absorb`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct QAbsorbSpec {
  uint32_t heads;
  uint32_t nope;     // reduction length
  uint32_t v;        // value rows of each head in kv_b, skipped here
  uint32_t kv_lora;  // columns of kv_b
  uint32_t rope;     // columns of each head of q_out beyond kv_lora, left alone
};

struct QAbsorbPayload {
  uint32_t row_begin;
  uint32_t row_count;
  uint32_t head;
  uint32_t n_begin;  // a multiple of 128
  uint32_t n_count;
};

enum QAbsorbSlot : uint32_t { kQAbsorbQNope, kQAbsorbKvB, kQAbsorbKvBScale, kQAbsorbQOut };

}  // namespace megartp::ops
