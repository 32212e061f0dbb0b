// indexer_score in the persistent kernel.
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

// A page of shared memory for q, one for two pages of keys.
uint32_t num_pages(const InstructionCheck& c) {
  const auto p = decode_spec<IndexerScorePayload>(c.instruction.payload);
  const int64_t key_pages = ceil_div<int64_t>(p.kv_end - p.kv_begin, kPageTokens);
  return static_cast<uint32_t>(1 + ceil_div<int64_t>(key_pages, 2));
}

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
  if (s.head_dim == kDim && s.heads <= device::kScorePairs && device::kScorePairs % s.heads == 0 && s.heads >= 8)
    return {};
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("the device op takes 8, 16, 32, 64 or 128 heads of {}, not {} of {}", kDim, s.heads, s.head_dim));
}

constexpr std::array<MegaOpInfo, 1> kMegaOps{{{kOpcode_indexer_score,
                                               "ops/indexer_score/device/indexer_score_mega.cuh",
                                               "IndexerScoreMega",
                                               {},
                                               num_pages,
                                               maps,
                                               check}}};

}  // namespace

std::span<const MegaOpInfo> indexer_score_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
