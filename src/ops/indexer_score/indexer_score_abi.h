// Spec, payload and operand row of `indexer_score`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

namespace megartp::ops {

struct IndexerScoreSpec {
  uint32_t heads;
  uint32_t head_dim;
  uint32_t num_pages;    // of the cache
  uint32_t table_width;  // pages of one request in the block table
  uint32_t columns;      // of the logits
};

struct IndexerScorePayload {
  uint32_t request;  // row of the block table
  uint32_t row_begin;
  uint32_t row_count;
  uint32_t kv_begin;  // tokens; a multiple of 64
  uint32_t kv_end;
  uint32_t fill;  // 1: also writes -inf from kv_end to the end of the rows
};

inline constexpr uint32_t kIndexerScoreMaxRows = 128;      // of one tile (one head)
inline constexpr uint32_t kIndexerScoreMaxDim = 1U << 16;  // of one head

enum IndexerScoreSlot : uint32_t {
  kIndexerScoreQ,
  kIndexerScoreWeights,
  kIndexerScoreCache,
  kIndexerScoreContextLens,
  kIndexerScoreBlockTable,
  kIndexerScoreLogits,
};

}  // namespace megartp::ops
