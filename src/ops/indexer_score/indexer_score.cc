// indexer_score: shape inference, tiles and regions, instruction check.
#include "ops/indexer_score/indexer_score.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "abi/mega.h"
#include "base/math.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/paged_cache.h"
#include "ops/indexer_score/device/indexer_score_layout.h"
#include "ops/indexer_score/indexer_score_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<std::string_view, 5> kInputs{"q", "weights", "index_k_cache", "context_lens", "block_table"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_indexer_score, "indexer_score"}}};
constexpr int64_t kBlockPairs = 128;  // (row, head) pairs of one tile
constexpr int64_t kTaskTokens = 512;  // keys of one tile: two splits of 256
constexpr int64_t kManySms = 100;     // with so many SMs tiles are shorter, for as many tiles as workers
constexpr int64_t kShortTaskTokens = 128;
// Tiles a worker at most, while tiles can be longer. Each costs events, q once more and some microseconds, but the last
// ones keep few workers busy.
constexpr int64_t kTilesPerWorker = 2;
constexpr int64_t kColumnAlign = 256;  // of the logits
constexpr int64_t kMaxHeads = 1 << 16;

// The tiles of one block of rows: consecutive, one per task_tokens_ keys.
struct RowBlock {
  uint32_t first_tile;
  uint32_t request;
  int32_t row_begin;
  int32_t row_count;
  int32_t kv_len;
};

uint32_t num_tiles_of(const RowBlock& b, int64_t task_tokens) {
  return static_cast<uint32_t>(std::max<int64_t>(1, ceil_div<int64_t>(b.kv_len, task_tokens)));
}
// Keys of a tile on a GPU: as few as give no more tiles than kTilesPerWorker asks for.
int64_t gpu_task_tokens(std::span<const RowBlock> blocks, int64_t num_sms) {
  // A tile and the next one's q fit the ring of pages: q, and two key pages in each further page. The next one's keys
  // come while this one's pages are given back.
  constexpr int64_t kMostTokens = (abi::kMegaPages - 2) * 2 * kPageTokens;
  static_assert(kMostTokens <= device::kScoreTilePages * kPageTokens);
  for (int64_t tokens = kShortTaskTokens; tokens < kMostTokens; tokens += kShortTaskTokens) {
    int64_t tiles = 0;
    for (const RowBlock& b : blocks) tiles += num_tiles_of(b, tokens);
    if (tiles <= kTilesPerWorker * gpu_workers(num_sms)) return tokens;
  }
  return kMostTokens;
}

using Extent = std::pair<int64_t, int64_t>;
void add_regions(std::span<const TensorId> ids, const IndexerScoreSpec& s, Extent rows, Extent requests, Extent columns,
                 bool scatter, std::vector<Access>& reads, std::vector<Access>& writes) {
  reads.push_back({ids[kIndexerScoreQ], Box::of({rows, {0, s.heads}, {0, s.head_dim}})});
  reads.push_back({ids[kIndexerScoreWeights], Box::of({rows, {0, s.heads}})});
  reads.push_back({ids[kIndexerScoreCache], Box::of({{0, s.num_pages}, {0, index_page_bytes(s.head_dim)}})});
  reads.push_back({ids[kIndexerScoreContextLens], Box::of({rows})});
  reads.push_back({ids[kIndexerScoreBlockTable], Box::of({requests, {0, s.table_width}})});
  writes.push_back({ids[kIndexerScoreLogits], Box::of({rows, columns}), 0, scatter});
}
// What the payload says; a stage for any shape claims more.
void add_tile_regions(std::span<const TensorId> ids, const IndexerScoreSpec& s, const IndexerScorePayload& p,
                      std::vector<Access>& reads, std::vector<Access>& writes) {
  add_regions(ids, s, {p.row_begin, int64_t{p.row_begin} + p.row_count}, {p.request, int64_t{p.request} + 1},
              {p.kv_begin, p.fill != 0 ? s.columns : p.kv_end}, false, reads, writes);
}

class IndexerScoreStage final : public Stage {
 public:
  IndexerScoreStage(const LowerContext& c, const IndexerScoreSpec& s)
      : spec_(s),
        any_shape_(c.any_shape()),
        rows_(c.input_dims(kIndexerScoreQ)[0]),
        table_rows_(c.input_dims(kIndexerScoreBlockTable)[0]) {
    name = c.op().name;
    opcode = kOpcode_indexer_score;
    spec = encode_spec(s);
    for (uint32_t i = 0; i < kInputs.size(); ++i) slots.push_back(c.input(i));
    slots.push_back(c.output(0));
    const auto block_q = static_cast<int32_t>(std::max<int64_t>(1, kBlockPairs / s.heads));
    int32_t row = 0;
    for (uint32_t r = 0; r < c.shapes().requests.size(); ++r) {
      const RequestShape& request = c.shapes().requests[r];
      for (int32_t first = 0; first < request.num_rows; first += block_q)
        blocks_.push_back({0, r, row + first, std::min(block_q, request.num_rows - first), request.kv_len});
      row += request.num_rows;
    }
    // For any shape all have the same, so that smaller shapes have fewer tiles.
    if (c.num_sms() >= kManySms) task_tokens_ = any_shape_ ? kShortTaskTokens : gpu_task_tokens(blocks_, c.num_sms());
    for (RowBlock& b : blocks_) {
      b.first_tile = num_tiles;
      num_tiles += num_tiles_of(b, task_tokens_);
    }
  }

  void tile(uint32_t tile_idx, TileDesc& t) const override {
    const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), tile_idx,
                                        [](uint32_t tile, const RowBlock& b) { return tile < b.first_tile; });
    const RowBlock& b = *(after - 1);
    const int64_t kv_begin = int64_t{tile_idx - b.first_tile} * task_tokens_;
    const int64_t kv_end = std::min<int64_t>(b.kv_len, kv_begin + task_tokens_);
    const bool is_last = kv_end == b.kv_len;
    const int64_t write_end = is_last ? int64_t{spec_.columns} : kv_end;
    t.set_payload({b.request, static_cast<uint32_t>(b.row_begin), static_cast<uint32_t>(b.row_count),
                   static_cast<uint32_t>(kv_begin), static_cast<uint32_t>(kv_end), is_last ? 1U : 0U});
    const auto rows = static_cast<uint64_t>(b.row_count);
    const auto keys = static_cast<uint64_t>(kv_end - kv_begin);
    const uint64_t pair_dims = rows * spec_.heads * spec_.head_dim;
    t.other_bytes = keys * (spec_.head_dim + 4) + pair_dims + rows * static_cast<uint64_t>(write_end - kv_begin) * 4;
    t.flops = pair_dims * keys;
    if (!t.wants_regions) return;
    // For any shape, tile i may be of any rows, request and keys: all tiles touch the same, everything.
    if (any_shape_)
      add_regions(slots, spec_, {0, rows_}, {0, table_rows_}, {0, spec_.columns}, true, t.reads, t.writes);
    else
      add_tile_regions(slots, spec_, decode_spec<IndexerScorePayload>(t.payload), t.reads, t.writes);
  }

 private:
  IndexerScoreSpec spec_;
  bool any_shape_;
  int64_t task_tokens_ = kTaskTokens;
  int64_t rows_, table_rows_;
  std::vector<RowBlock> blocks_;
};

// The batch's requests must match the tensors: their rows are all rows, their lengths fit the table and the logits.
Status check_requests(const LowerContext& c, const IndexerScoreSpec& s) {
  const auto fail = [&](const std::string& problem) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("op '{}': {}", c.op().name, problem));
  };
  const auto& requests = c.shapes().requests;
  const int64_t rows = c.input_dims(kIndexerScoreQ)[0];
  const int64_t table_rows = c.input_dims(kIndexerScoreBlockTable)[0];
  if (static_cast<int64_t>(requests.size()) > table_rows)
    return fail(fmt::format("{} requests, but tensor '{}' has {} rows", requests.size(),
                            c.tensor(c.input(kIndexerScoreBlockTable)).name, table_rows));
  int64_t total = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].num_rows < 0) return fail(fmt::format("request {} has {} rows", r, requests[r].num_rows));
    total += requests[r].num_rows;
    const int64_t reach = std::min(int64_t{s.table_width} * kPageTokens, int64_t{s.columns});
    if (requests[r].kv_len < 0 || requests[r].kv_len > reach)
      return fail(fmt::format("request {} has length {}, but its block table and logits reach {}", r,
                              requests[r].kv_len, reach));
  }
  if (total != rows) return fail(fmt::format("the requests have {} rows together, but M is {}", total, rows));
  return {};
}

class IndexerScoreFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "indexer_score"; }
  std::string_view doc() const override {
    return "scores every visible key of a paged FP8 index cache against all query heads (ReLU, head weights, key "
           "scale)";
  }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override { return {}; }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(expect_tensor(c, 0, DType::kF8E4M3, {"*", "*", "*"}));
    const int64_t heads = MEGARTP_TRY(const_dim(c, 0, 1));
    const int64_t dim = MEGARTP_TRY(const_dim(c, 0, 2));
    if (heads > kMaxHeads || dim > kIndexerScoreMaxDim)
      return tl::unexpected(
          shape_error(c, 0, fmt::format("up to {} heads of up to {}", kMaxHeads, kIndexerScoreMaxDim)));
    const Dim rows = c.inputs[0].shape[0];
    MEGARTP_TRY(expect_tensor(c, 1, DType::kF32, {rows, heads}));
    MEGARTP_TRY(expect_tensor(c, 2, DType::kU8, {"*", index_page_bytes(dim)}));
    MEGARTP_TRY(expect_tensor(c, 3, DType::kI32, {rows}));
    MEGARTP_TRY(expect_tensor(c, 4, DType::kI32, {"*", "*"}));
    return InferResult{{{"logits", DType::kF32, {rows, Dim::sym("KV", kColumnAlign)}}}, {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const auto& q = c.input_dims(kIndexerScoreQ);
    const IndexerScoreSpec spec{static_cast<uint32_t>(q[1]), static_cast<uint32_t>(q[2]),
                                static_cast<uint32_t>(c.input_dims(kIndexerScoreCache)[0]),
                                static_cast<uint32_t>(c.input_dims(kIndexerScoreBlockTable)[1]),
                                static_cast<uint32_t>(c.output_dims(0)[1])};
    MEGARTP_TRY(check_requests(c, spec));
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::make_unique<IndexerScoreStage>(c, spec));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override { return indexer_score_reference(c); }
  void run_tile(const CpuTile& t) const override { indexer_score_run_tile(t); }

  Status check_instruction(const InstructionCheck& c) const override {
    const auto fail = [](const std::string& problem) {
      return make_error(ErrorCode::kParse, "indexer_score: " + problem);
    };
    if (c.spec.size() != sizeof(IndexerScoreSpec) / 4 ||
        abi::num_payload(c.instruction) != sizeof(IndexerScorePayload) / 4)
      return fail("wrong number of spec or payload words");
    const auto s = decode_spec<IndexerScoreSpec>(c.spec);
    const auto p = decode_spec<IndexerScorePayload>(c.instruction.payload);
    if (s.heads == 0 || s.heads > kMaxHeads || s.head_dim == 0 || s.head_dim > kIndexerScoreMaxDim)
      return fail(fmt::format("{} heads of {} are out of range", s.heads, s.head_dim));
    if (!c.operand_is(kIndexerScoreQ, DType::kF8E4M3, {-1, s.heads, s.head_dim}))
      return fail("operand q does not fit the spec");
    const int64_t rows = c.operands[kIndexerScoreQ].dims[0];
    if (!c.operand_is(kIndexerScoreWeights, DType::kF32, {rows, s.heads}) ||
        !c.operand_is(kIndexerScoreCache, DType::kU8, {s.num_pages, index_page_bytes(s.head_dim)}) ||
        !c.operand_is(kIndexerScoreContextLens, DType::kI32, {rows}) ||
        !c.operand_is(kIndexerScoreBlockTable, DType::kI32, {-1, s.table_width}) ||
        !c.operand_is(kIndexerScoreLogits, DType::kF32, {rows, s.columns}))
      return fail("an operand does not fit the spec " + describe_spec(c.spec));
    const bool rows_fit =
        p.row_count > 0 && p.row_count <= kIndexerScoreMaxRows && int64_t{p.row_begin} + p.row_count <= rows;
    const bool keys_fit = p.kv_begin % kPageTokens == 0 && p.kv_begin <= p.kv_end && p.kv_end <= s.columns &&
                          p.kv_end <= int64_t{s.table_width} * kPageTokens && p.fill <= 1;
    if (!rows_fit || !keys_fit || p.request >= c.operands[kIndexerScoreBlockTable].dims[0])
      return fail("a tile is outside its operands: " + describe_payload(0, c.instruction.payload));
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_tile_regions(kSlotIds, decode_spec<IndexerScoreSpec>(c.spec),
                     decode_spec<IndexerScorePayload>(c.instruction.payload), out.reads, out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> words) const override {
    const auto p = decode_spec<IndexerScorePayload>(words);
    return fmt::format("request {}, m {}..{}, kv {}..{}{}", p.request, p.row_begin, uint64_t{p.row_begin} + p.row_count,
                       p.kv_begin, p.kv_end, p.fill != 0 ? ", fill to the end" : "");
  }
  std::string describe_spec(std::span<const uint32_t> words) const override {
    const auto s = decode_spec<IndexerScoreSpec>(words);
    return fmt::format("heads={} D={} pages={} table={} columns={}", s.heads, s.head_dim, s.num_pages, s.table_width,
                       s.columns);
  }
};

}  // namespace

const OpFamily& indexer_score_family() {
  static const IndexerScoreFamily family;
  return family;
}

}  // namespace megartp::ops
