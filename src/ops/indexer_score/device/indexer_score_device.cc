// indexer_score on the GPU: blocks of tokens of one request with 128 (token, head) pairs, times chunks of pages; other
// dims by the generic kernel.
#include <algorithm>
#include <optional>

#include "ops/common/device_gemm.h"
#include "ops/common/paged_cache.h"
#include "ops/indexer_score/device/indexer_score_layout.h"
#include "ops/indexer_score/indexer_score_abi.h"

namespace megartp::ops {
namespace {

constexpr int64_t kPairs = device::kScorePairs;
constexpr int64_t kDim = 128;
constexpr uint32_t kInlineBlocks = device::kScoreInlineBlocks;
// About one CTA an SM: the score runs beside main_q, whose CTAs leave room for no more. Longer chunks even out less
// well where lengths differ.
constexpr int64_t kCtasPerSm = 1;
constexpr int64_t kMinPages = 2;
constexpr int64_t kMaxPages = 32;

struct Dims {
  int64_t m, heads, dim, pages, table_width, columns;
};

struct TokenBlock {
  uint32_t request, rows, first_row;
};

Result<std::vector<TokenBlock>> token_blocks(const DeviceContext& c, const Dims& d, int64_t max_rows) {
  std::vector<TokenBlock> blocks;
  int64_t row = 0;
  const auto& requests = c.shapes().requests;
  for (size_t r = 0; r < requests.size(); ++r) {
    const int64_t end = row + std::max(requests[r].num_rows, 0);
    for (; row < end; row += std::min(max_rows, end - row))
      blocks.push_back(
          {static_cast<uint32_t>(r), static_cast<uint32_t>(std::min(max_rows, end - row)), static_cast<uint32_t>(row)});
  }
  if (row != d.m || static_cast<int64_t>(requests.size()) > c.input_dims(kIndexerScoreBlockTable)[0])
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("op '{}': {} requests with {} rows together do not fit tensors '{}' {} and '{}' {}", c.op().name,
                    requests.size(), row, c.tensor(c.input(kIndexerScoreQ)).name,
                    to_string(c.input_dims(kIndexerScoreQ)), c.tensor(c.input(kIndexerScoreBlockTable)).name,
                    to_string(c.input_dims(kIndexerScoreBlockTable))));
  return blocks;
}

bool has_fast_kernel(const DeviceContext& c, const Dims& d) {
  const bool heads_fit = d.heads == 8 || d.heads == 16 || d.heads == 32 || d.heads == 64 || d.heads == 128;
  return heads_fit && d.dim == kDim && c.shapes().requests.size() <= 0x10000;
}

class IndexerScoreDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "indexer_score"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const auto& q = c.input_dims(kIndexerScoreQ);
    const Dims d{q[0],
                 q[1],
                 q[2],
                 c.input_dims(kIndexerScoreCache)[0],
                 c.input_dims(kIndexerScoreBlockTable)[1],
                 c.output_dims(0)[1]};
    const bool is_fast = has_fast_kernel(c, d);
    const auto blocks = MEGARTP_TRY(token_blocks(c, d, is_fast ? kPairs / d.heads : d.m));
    return std::vector<DeviceKernel>{is_fast ? fast(c, d, blocks) : generic(c, d, blocks)};
  }

 private:
  static int64_t visible_keys(const DeviceContext& c) {
    int64_t keys = 0;
    for (const RequestShape& r : c.shapes().requests) keys += r.kv_len;
    return keys;
  }
  static void add_cost(const DeviceContext& c, const Dims& d, KernelBuilder& b) {
    const int64_t keys = visible_keys(c);
    const int64_t rows = std::max<int64_t>(1, d.m / static_cast<int64_t>(c.shapes().requests.size()));
    b.cost(0, keys * (d.dim + 4) + d.m * d.heads * (d.dim + 4) + 4 * d.m * d.columns, rows * keys * d.heads * d.dim);
  }

  // Nothing unless all blocks fit the parameters: request in 8 bits, rows in 8, first row in 16.
  static std::optional<std::vector<uint32_t>> inline_words(const std::vector<TokenBlock>& blocks) {
    std::vector<uint32_t> words(kInlineBlocks);
    if (blocks.size() > kInlineBlocks) return std::nullopt;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].request > 0xff || blocks[i].first_row > 0xffff) return std::nullopt;
      words[i] = blocks[i].request | blocks[i].rows << 8 | blocks[i].first_row << 16;
    }
    return words;
  }

  static DeviceKernel fast(DeviceContext& c, const Dims& d, const std::vector<TokenBlock>& blocks) {
    using Means = DeviceAccess::Means;
    const auto size = [](int64_t v) { return static_cast<uint64_t>(v); };
    TensorMapSpec q_map;
    q_map.dims = {size(kDim), size(d.m * d.heads)};
    q_map.strides = {size(kDim)};
    q_map.box = {kDim, kPairs};
    TensorMapSpec key_map;
    key_map.rank = 3;
    key_map.dims = {size(kDim), size(kPageTokens), size(d.pages)};
    key_map.strides = {size(kDim), size(index_page_bytes(kDim))};
    key_map.box = {kDim, kPageTokens, 1};

    const auto num_blocks = static_cast<int64_t>(blocks.size());
    const int64_t columns_pages = ceil_div(d.columns, kPageTokens);
    const int64_t pages =
        std::clamp(ceil_div(num_blocks * columns_pages, kCtasPerSm * c.target().num_sms), kMinPages, kMaxPages);
    const int64_t chunks = ceil_div(columns_pages, pages);

    const auto words = inline_words(blocks);
    KernelBuilder b(c.op().name, "ops/indexer_score/device/indexer_score.cuh",
                    fmt::format("indexer_score<{}, {}, $WAIT>", d.heads, words.has_value()));
    b.input_map("q_map", c.input(kIndexerScoreQ), q_map).input_map("key_map", c.input(kIndexerScoreCache), key_map);
    b.input("weights", c.input(kIndexerScoreWeights)).input("cache", c.input(kIndexerScoreCache), Means::kTma);
    b.early("context_lens", c.input(kIndexerScoreContextLens));
    b.early("block_table", c.input(kIndexerScoreBlockTable));
    if (words) {
      b.unused("blocks", c.input(kIndexerScoreBlockTable));
    } else {
      std::vector<uint32_t> list;
      for (const TokenBlock& t : blocks) {
        list.push_back(t.request | t.rows << 16);
        list.push_back(t.first_row);
      }
      b.early("blocks", c.add_constant("blocks", std::move(list)));
    }
    b.output("logits", c.output(0));
    for (uint32_t i = 0; i < kInlineBlocks; ++i) b.u32(fmt::format("inline_blocks[{}]", i), words ? (*words)[i] : 0);
    b.u32("num_pages", d.pages).u32("table_width", d.table_width);
    b.u32("columns", d.columns).u32("pages_per_cta", pages).u32("chunks", chunks);
    add_cost(c, d, b);
    return b.launch(num_blocks * chunks, 1, device::kScoreThreads, device::kScoreSmemBytes).take();
  }

  static DeviceKernel generic(DeviceContext& c, const Dims& d, const std::vector<TokenBlock>& blocks) {
    std::vector<uint32_t> requests;
    for (const TokenBlock& t : blocks) requests.insert(requests.end(), t.rows, t.request);
    KernelBuilder b(c.op().name, "ops/indexer_score/device/indexer_score_generic.cuh", "indexer_score_generic<$WAIT>");
    b.input("q", c.input(kIndexerScoreQ)).input("weights", c.input(kIndexerScoreWeights));
    b.input("cache", c.input(kIndexerScoreCache)).input("context_lens", c.input(kIndexerScoreContextLens));
    b.input("block_table", c.input(kIndexerScoreBlockTable));
    b.input("requests", c.add_constant("requests", std::move(requests))).output("logits", c.output(0));
    b.u32("m", d.m).u32("heads", d.heads).u32("dim", d.dim).u32("num_pages", d.pages);
    b.u32("table_width", d.table_width).u32("columns", d.columns);
    add_cost(c, d, b);
    return b.launch(generic_grid(c, d.m * d.columns, kGenericWarps), 1, kGenericThreads).no_prologue().take();
  }
};

}  // namespace

const DeviceFamily& indexer_score_device_family() {
  static const IndexerScoreDevice family;
  return family;
}

}  // namespace megartp::ops
