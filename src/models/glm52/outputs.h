// Readable forms of what attention-pre leaves in quantised or packed tensors: for result files and comparisons.
//
// All give F32 buffers with the exact values that the codes stand for (e4m3 value times its scale, rounded once).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "megartp/error.h"
#include "models/glm52/buffer.h"

namespace megartp::glm52 {

// [M, head_dim]: the keys that the new rows have in an index-K cache U8 [pages, 64 * (head_dim + 4)]. kInvalidArgument
// with the row for a slot outside the cache or a cache of another page size.
Result<Buffer> dequantize_index_k(std::span<const std::byte> cache, std::span<const int32_t> slot_mapping,
                                  int64_t head_dim);

// [M, heads, head_dim] from codes of that shape and scales [M, heads].
Buffer dequantize_index_q(const e4m3* q, const float* scale, int64_t m, int64_t heads, int64_t head_dim);

// Columns [begin, end) of a BF16 matrix [M, columns]: kv_latent is [0, kv_lora) and k_pe is [kv_lora, kv_lora + rope)
// of "kv".
Buffer bf16_columns(const bf16* matrix, int64_t m, int64_t columns, int64_t begin, int64_t end);

}  // namespace megartp::glm52
