// indexer_score in the persistent kernel: a page for q, one for every two pages of keys, both by tensor maps.
#include <array>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/common/paged_cache.h"
#include "ops/indexer_score/device/indexer_score_layout.h"
#include "ops/indexer_score/indexer_score_abi.h"
#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr uint32_t kDim = 128;
constexpr uint32_t kMinHeads = 8;

int64_t key_pages(const InstructionCheck& c) {
  const auto p = decode_spec<IndexerScorePayload>(c.instruction.payload);
  return ceil_div<int64_t>(int64_t{p.kv_end} - p.kv_begin, kPageTokens);
}
uint32_t num_pages(const InstructionCheck& c) { return static_cast<uint32_t>(1 + ceil_div<int64_t>(key_pages(c), 2)); }

// q [M * heads, 128] and the keys of the cache [pages, 64, 128].
std::vector<MegaOpMap> maps(std::span<const uint32_t> spec, std::span<const OperandType> operands) {
  const auto s = decode_spec<IndexerScoreSpec>(spec);
  const auto rows = static_cast<uint64_t>(operands[kIndexerScoreQ].dims[0]);
  MegaOpMap q{0, kIndexerScoreQ, {}};
  q.spec.dims = {kDim, rows * s.heads};
  q.spec.strides = {kDim};
  q.spec.box = {kDim, device::kScorePairs};
  MegaOpMap keys{1, kIndexerScoreCache, {}};
  keys.spec.rank = 3;
  keys.spec.dims = {kDim, kPageTokens, s.num_pages};
  keys.spec.strides = {kDim, static_cast<uint64_t>(index_page_bytes(kDim))};
  keys.spec.box = {kDim, kPageTokens, 1};
  return {q, keys};
}

Status check(const InstructionCheck& c) {
  const auto s = decode_spec<IndexerScoreSpec>(c.spec);
  const auto p = decode_spec<IndexerScorePayload>(c.instruction.payload);
  const bool heads_fit = s.heads >= kMinHeads && device::kScorePairs % s.heads == 0 && s.head_dim == kDim;
  return mega_dims_fit(
      heads_fit && p.row_count * s.heads <= device::kScorePairs && key_pages(c) <= device::kScoreTilePages,
      fmt::format("8, 16, 32, 64 or 128 heads of {} and tiles of up to {} (row, head) pairs and {} "
                  "keys, not {} heads of {}, {} and {}",
                  kDim, device::kScorePairs, device::kScoreTilePages * kPageTokens, s.heads, s.head_dim,
                  p.row_count * s.heads, p.kv_end - p.kv_begin));
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{MegaOpInfo{kOpcode_indexer_score,
                                                        "ops/indexer_score/device/indexer_score_mega.cuh",
                                                        "IndexerScoreMega",
                                                        {},
                                                        num_pages,
                                                        maps,
                                                        check}
                                                 .taking(2.0)};

}  // namespace

std::span<const MegaOpInfo> indexer_score_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
