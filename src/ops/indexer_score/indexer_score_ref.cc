// Naive double-precision indexer_score: the oracle.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/float8.h"
#include "ops/indexer_score/indexer_score.h"

namespace megartp::ops {

Status indexer_score_reference(const ReferenceContext& c) {
  const auto* q = c.inputs[0].as<e4m3>();
  const auto* weights = c.inputs[1].as<float>();
  const auto* cache = c.inputs[2].as<uint8_t>();
  const auto* context_lens = c.inputs[3].as<int32_t>();
  const auto* block_table = c.inputs[4].as<int32_t>();
  auto* logits = c.outputs[0].as<float>();
  const int64_t heads = c.inputs[0].dims[1];
  const int64_t dim = c.inputs[0].dims[2];
  const int64_t num_pages = c.inputs[2].dims[0];
  const int64_t page_bytes = c.inputs[2].dims[1];
  const int64_t table_width = c.inputs[4].dims[1];
  const int64_t columns = c.outputs[0].dims[1];
  int64_t m = 0;
  for (size_t r = 0; r < c.shapes.requests.size(); ++r) {
    for (int32_t t = 0; t < c.shapes.requests[r].num_rows; ++t, ++m) {
      const int64_t visible = std::clamp<int64_t>(context_lens[m], 0, c.shapes.requests[r].kv_len);
      for (int64_t s = 0; s < columns; ++s) {
        float& out = logits[m * columns + s];
        out = -std::numeric_limits<float>::infinity();
        if (s >= visible) continue;
        const int64_t page = block_table[static_cast<int64_t>(r) * table_width + s / 64];
        if (page < 0 || page >= num_pages)
          return make_error(ErrorCode::kInvalidArgument,
                            fmt::format("op '{}': block_table[{}][{}] is {}, but the cache has {} pages", c.op.name, r,
                                        s / 64, page, num_pages));
        const uint8_t* key = cache + page * page_bytes + s % 64 * dim;
        float key_scale = 0;
        __builtin_memcpy(&key_scale, cache + page * page_bytes + 64 * dim + s % 64 * 4, 4);
        double score = 0;
        for (int64_t h = 0; h < heads; ++h) {
          double dot = 0;
          for (int64_t d = 0; d < dim; ++d)
            dot += static_cast<double>(to_float(q[(m * heads + h) * dim + d])) *
                   static_cast<double>(to_float(e4m3{key[d]}));
          if (dot > 0) score += static_cast<double>(weights[m * heads + h]) * dot;
        }
        out = static_cast<float>(static_cast<double>(key_scale) * score);
      }
    }
  }
  return {};
}

}  // namespace megartp::ops
