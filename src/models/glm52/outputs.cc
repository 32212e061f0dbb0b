#include "models/glm52/outputs.h"

#include <cstring>

#include <fmt/format.h>

#include "ops/common/paged_cache.h"

namespace megartp::glm52 {

Result<Buffer> dequantize_index_k(std::span<const std::byte> cache, std::span<const int32_t> slot_mapping,
                                  int64_t head_dim) {
  const int64_t page_bytes = ops::index_page_bytes(head_dim);
  const auto cache_bytes = static_cast<int64_t>(cache.size());
  if (cache_bytes % page_bytes != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("tensor 'index_k_cache' has {} bytes, not a multiple of the page size {}",
                                  cache_bytes, page_bytes));
  const int64_t num_slots = cache_bytes / page_bytes * ops::kPageTokens;
  Buffer out = Buffer::make(DType::kF32, {static_cast<int64_t>(slot_mapping.size()), head_dim});
  auto* values = out.as<float>();
  for (size_t row = 0; row < slot_mapping.size(); ++row) {
    const int64_t slot = slot_mapping[row];
    if (slot < 0 || slot >= num_slots)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("slot_mapping[{}] is {}, outside the cache of {} slots", row, slot, num_slots));
    const std::byte* page = cache.data() + slot / ops::kPageTokens * page_bytes;
    const int64_t token = slot % ops::kPageTokens;
    const auto* codes = reinterpret_cast<const e4m3*>(page + token * head_dim);
    float scale = 0;
    std::memcpy(&scale, page + ops::kPageTokens * head_dim + 4 * token, sizeof scale);
    for (int64_t d = 0; d < head_dim; ++d) *values++ = to_float(codes[d]) * scale;
  }
  return out;
}

Buffer dequantize_index_q(const e4m3* q, const float* scale, int64_t m, int64_t heads, int64_t head_dim) {
  Buffer out = Buffer::make(DType::kF32, {m, heads, head_dim});
  auto* values = out.as<float>();
  for (int64_t group = 0; group < m * heads; ++group)
    for (int64_t d = 0; d < head_dim; ++d) *values++ = to_float(q[group * head_dim + d]) * scale[group];
  return out;
}

Buffer bf16_columns(const bf16* matrix, int64_t m, int64_t columns, int64_t begin, int64_t end) {
  Buffer out = Buffer::make(DType::kF32, {m, end - begin});
  auto* values = out.as<float>();
  for (int64_t row = 0; row < m; ++row)
    for (int64_t c = begin; c < end; ++c) *values++ = to_float(matrix[row * columns + c]);
  return out;
}

}  // namespace megartp::glm52
