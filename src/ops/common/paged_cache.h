// Paged caches of 64-token pages, addressed through a block table.
//
// Index-K cache page (D = key dims, 128 for GLM-5.2), 64 * (D + 4) bytes: 64 keys of D e4m3 bytes, then 64 fp32 scales.
// MLA cache page, 64 records of record_bytes: kv_lora e4m3 | ceil(kv_lora/128) fp32 scales | rope bf16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megartp::ops {

inline constexpr int64_t kPageTokens = 64;

constexpr int64_t index_page_bytes(int64_t head_dim) { return kPageTokens * (head_dim + 4); }
constexpr int64_t mla_record_bytes(int64_t kv_lora, int64_t rope) {
  return kv_lora + 4 * ((kv_lora + 127) / 128) + 2 * rope;
}

// Slot of a position: block_table[request][position / 64] * 64 + position % 64.
inline int64_t cache_slot(const int32_t* block_table, int64_t table_width, int32_t request, int32_t position) {
  const int64_t page = block_table[int64_t{request} * table_width + position / kPageTokens];
  return page * kPageTokens + position % kPageTokens;
}

}  // namespace megartp::ops
