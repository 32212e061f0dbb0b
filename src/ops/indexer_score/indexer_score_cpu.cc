// One indexer_score tile on the CPU.
//
// Page by page: the FP8 tile product gives the dots of every (row, head) with the page's 64 keys (the weight of that
// product is the page itself), so a key is decoded once per 64 (row, head) pairs; then each row adds its heads in
// ascending order.
#include <algorithm>
#include <limits>

#include "ops/common/gemm_cpu.h"
#include "ops/common/gemm_cpu_kernels.h"
#include "ops/common/paged_cache.h"
#include "ops/indexer_score/indexer_score.h"
#include "ops/indexer_score/indexer_score_abi.h"

namespace megartp::ops {
namespace {

constexpr int64_t kMaxPairs = 128;  // (row, head) pairs of one product
constexpr int64_t kMaxKBlocks = kIndexerScoreMaxDim / 128;

struct alignas(64) Scratch {
  std::byte gemm[kGemmScratchBytes];
  float dots[kMaxPairs][kPageTokens];
  float ones[kMaxKBlocks];  // the product's scales: e4m3 products are summed raw here
  float sums[kPageTokens];
};
static_assert(sizeof(Scratch) <= kCpuScratchBytes);

struct Tile {
  IndexerScoreSpec spec;
  IndexerScorePayload payload;
  const e4m3* q;
  const float* weights;
  const std::byte* cache;
  float* logits;
  Scratch* scratch;
};

// dots[pair][key] for `pairs` (row, head) pairs from `first_pair` on and the first `num_keys` keys of the page.
void dot_page(const Tile& t, int64_t first_pair, int64_t pairs, const std::byte* page, int64_t num_keys) {
  const int64_t dim = t.spec.head_dim;
  Fp8GemmArgs g;
  g.a = t.q + first_pair * dim;
  g.lda = dim;
  g.a_scale = t.scratch->ones;
  g.ld_a_scale = 0;
  g.w = reinterpret_cast<const e4m3*>(page);
  g.ldw = dim;
  g.w_scale = t.scratch->ones;
  g.ld_w_scale = 0;
  g.m_count = pairs;
  g.n_count = num_keys;
  g.k_end = dim;
  g.out = t.scratch->dots[0];
  g.ld_out = kPageTokens;
  fp8_gemm_tile(g, t.scratch->gemm);
}

// sums[key] += w[h] * max(0, dots[h][key]), h ascending.
void add_heads(const float (*dots)[kPageTokens], const float* weights, int64_t heads, float* sums) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t k = 0; k < kPageTokens; ++k) sums[k] += weights[h] * (dots[h][k] > 0 ? dots[h][k] : 0.0F);
}

// Scores of the rows [row, row + num_rows), all heads, on one page that starts at token kv. num_rows > 1 only if all
// their heads fit one product.
void score_page(const Tile& t, int64_t row, int64_t num_rows, const std::byte* page, int64_t kv,
                const int64_t* visible) {
  const int64_t heads = t.spec.heads;
  const int64_t longest = *std::max_element(visible, visible + num_rows);
  const int64_t num_keys = std::min(kPageTokens, longest - kv);
  if (num_keys <= 0) return;
  const bool all_heads_fit = heads <= kMaxPairs;
  if (all_heads_fit) dot_page(t, row * heads, num_rows * heads, page, num_keys);
  for (int64_t r = 0; r < num_rows; ++r) {
    float* sums = t.scratch->sums;
    std::fill_n(sums, kPageTokens, 0.0F);
    const float* weights = t.weights + (row + r) * heads;
    if (all_heads_fit) add_heads(t.scratch->dots + r * heads, weights, heads, sums);
    for (int64_t h = 0; h < heads && !all_heads_fit; h += kMaxPairs) {
      const int64_t some = std::min(kMaxPairs, heads - h);
      dot_page(t, (row + r) * heads + h, some, page, num_keys);
      add_heads(t.scratch->dots, weights + h, some, sums);
    }
    const auto* key_scale = reinterpret_cast<const float*>(page + kPageTokens * int64_t{t.spec.head_dim});
    float* out = t.logits + (row + r) * int64_t{t.spec.columns} + kv;
    const int64_t keys_of_row = std::min(num_keys, visible[r] - kv);
    for (int64_t k = 0; k < keys_of_row; ++k) out[k] = key_scale[k] * sums[k];
  }
}

}  // namespace

void indexer_score_run_tile(const CpuTile& t) {
  Tile tile{decode_spec<IndexerScoreSpec>(t.spec),
            decode_spec<IndexerScorePayload>({t.payload, sizeof(IndexerScorePayload) / 4}),
            t.operand<const e4m3>(kIndexerScoreQ),
            t.operand<const float>(kIndexerScoreWeights),
            t.operand<const std::byte>(kIndexerScoreCache),
            t.operand<float>(kIndexerScoreLogits),
            reinterpret_cast<Scratch*>(t.scratch.data())};
  const IndexerScoreSpec& s = tile.spec;
  const IndexerScorePayload& p = tile.payload;
  std::fill_n(tile.scratch->ones, kMaxKBlocks, 1.0F);
  // The rows' own lengths bound the keys, so a plan is right for every length up to its own; the block table is not
  // read beyond them. A length beyond the plan's, or a page outside the cache, makes keys invisible, never an access
  // outside.
  const auto* context_lens = t.operand<const int32_t>(kIndexerScoreContextLens);
  int64_t visible[kIndexerScoreMaxRows];
  int64_t kv_end = 0;
  for (int64_t r = 0; r < p.row_count; ++r) {
    visible[r] = std::clamp<int64_t>(context_lens[p.row_begin + r], 0, p.kv_end);
    kv_end = std::max(kv_end, visible[r]);
    float* row = tile.logits + (p.row_begin + r) * int64_t{s.columns};
    std::fill(row + p.kv_begin, row + (p.fill != 0 ? s.columns : p.kv_end), -std::numeric_limits<float>::infinity());
  }
  const auto* table = t.operand<const int32_t>(kIndexerScoreBlockTable) + int64_t{p.request} * s.table_width;
  const int64_t rows_at_once = std::max<int64_t>(1, kMaxPairs / s.heads);
  for (int64_t kv = p.kv_begin; kv < kv_end; kv += kPageTokens) {
    const int64_t page = table[kv / kPageTokens];
    if (page < 0 || page >= s.num_pages) continue;
    const std::byte* keys = tile.cache + page * index_page_bytes(s.head_dim);
    for (int64_t r = 0; r < p.row_count; r += rows_at_once)
      score_page(tile, p.row_begin + r, std::min(rows_at_once, p.row_count - r), keys, kv, visible + r);
  }
}

}  // namespace megartp::ops
