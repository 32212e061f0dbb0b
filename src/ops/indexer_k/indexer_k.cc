// indexer_k: shape inference, tiles and regions, instruction check.
#include "ops/indexer_k/indexer_k.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/hadamard.h"
#include "ops/common/paged_cache.h"
#include "ops/indexer_k/indexer_k_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {

Fp8GemmSlots indexer_k_gemm_slots() {
  Fp8GemmSlots slots;
  slots.a = kIndexerKX;
  slots.a_scale = kIndexerKXScale;
  slots.segments[0] = {kIndexerKWeight, kIndexerKWeightScale};
  slots.partial = kIndexerKPartial;
  return slots;
}

namespace {

constexpr std::array<std::string_view, 10> kInputs{"x",      "x_scale",   "wk",      "wk_scale",     "norm_w",
                                                   "norm_b", "positions", "cos_sin", "slot_mapping", "index_k_cache"};
static_assert(kInputs.size() == kIndexerKPartial);
constexpr std::array<OpcodeInfo, 3> kOpcodes{{{kOpcode_indexer_k_fused, "indexer_k.fused"},
                                              {kOpcode_indexer_k_gemm, "indexer_k.gemm"},
                                              {kOpcode_indexer_k_finalize, "indexer_k.finalize"}}};
constexpr double kDefaultEps = 1e-6;
constexpr int64_t kDefaultSplitK = 8;
constexpr int64_t kGpuFinalRows = 4;  // a warp has one at a time

void add_finalizer_reads(std::span<const TensorId> ids, const IndexerKSpec& spec, const Range& m,
                         std::vector<Access>& reads) {
  const int64_t dim = spec.gemm.segment_rows[0];
  reads.push_back({ids[kIndexerKNormW], Box::of({{0, dim}})});
  reads.push_back({ids[kIndexerKNormB], Box::of({{0, dim}})});
  reads.push_back({ids[kIndexerKPositions], Box::of({{m.begin, m.end}})});
  reads.push_back({ids[kIndexerKCosSin], Box::of({{0, spec.num_positions}, {0, spec.rope}})});
  reads.push_back({ids[kIndexerKSlotMapping], Box::of({{m.begin, m.end}})});
}
void add_finalizer_writes(std::span<const TensorId> ids, const IndexerKSpec& spec, std::vector<Access>& writes) {
  const int64_t page_bytes = index_page_bytes(spec.gemm.segment_rows[0]);
  writes.push_back({ids[kIndexerKCache], Box::of({{0, spec.num_pages}, {0, page_bytes}}), 0, true});
}
void add_partial_reads(std::span<const TensorId> ids, const IndexerKSpec& spec, const Range& m,
                       std::vector<Access>& reads) {
  reads.push_back(
      {ids[kIndexerKPartial], Box::of({{0, spec.gemm.splits}, {m.begin, m.end}, {0, spec.gemm.segment_rows[0]}})});
}

// Everything that the stages of one op know.
struct Layout {
  std::string name;
  IndexerKSpec spec{};
  std::array<TensorId, kIndexerKNumSlots> ids{};
  int64_t rows = 0;
  int64_t block_n = kBlockN;
  int64_t final_rows = 0;  // of a finalizer's tile

  int64_t dim() const { return spec.gemm.segment_rows[0]; }
  uint32_t num_finals() const { return static_cast<uint32_t>(ceil_div(rows, final_rows)); }
  Range rows_of(uint32_t final_idx) const { return block_range(rows, final_rows, final_idx); }

  void finalizer_reads(const Range& m, std::vector<Access>& reads) const { add_finalizer_reads(ids, spec, m, reads); }
  void finalizer_writes(std::vector<Access>& writes) const { add_finalizer_writes(ids, spec, writes); }
};

class GemmStage final : public Stage {
 public:
  GemmStage(const Layout& layout, bool is_fused)
      : layout_(layout),
        tiles_({layout.ids[kIndexerKX], layout.ids[kIndexerKXScale], layout.ids[kIndexerKPartial]}, layout.spec.gemm,
               layout.rows, layout.block_n),
        is_fused_(is_fused) {
    name = is_fused ? layout.name : layout.name + ".gemm";
    opcode = is_fused ? kOpcode_indexer_k_fused : kOpcode_indexer_k_gemm;
    spec = encode_spec(layout.spec);
    slots.assign(layout.ids.begin(), layout.ids.end());
    if (!is_fused) std::fill(slots.begin() + kIndexerKNormW, slots.begin() + kIndexerKPartial, kInvalidId);
    num_tiles = tiles_.num_tiles();
    num_join_groups = num_final_tiles = is_fused ? tiles_.num_m_tiles() : 0;
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    tiles_.tile(tile_idx, t);
    if (!is_fused_) return;
    // Any tile of the group may be the last arriver, so each waits for what the finalizer reads.
    t.join_group = tiles_.coordinates(tile_idx).m_tile;
    if (t.wants_regions) layout_.finalizer_reads(tiles_.m_range(t.join_group), t.reads);
  }
  void final_tile(uint32_t final_idx, FinalDesc& f) const override {
    f.join_group = final_idx;
    layout_.finalizer_reads(tiles_.m_range(final_idx), f.reads);
    layout_.finalizer_writes(f.writes);
  }

 private:
  Layout layout_;
  Fp8GemmTiles tiles_;
  bool is_fused_;
};

class FinalizeStage final : public Stage {
 public:
  explicit FinalizeStage(const Layout& layout) : layout_(layout) {
    name = layout.name + ".finalize";
    opcode = kOpcode_indexer_k_finalize;
    spec = encode_spec(layout.spec);
    slots.assign(layout.ids.begin(), layout.ids.end());
    std::fill(slots.begin(), slots.begin() + kIndexerKNormW, kInvalidId);
    num_tiles = layout.num_finals();
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    const Range m = layout_.rows_of(tile_idx);
    t.set_payload(
        {static_cast<uint32_t>(m.begin), static_cast<uint32_t>(m.size()), static_cast<uint32_t>(layout_.rows)});
    const int64_t splits = layout_.spec.gemm.splits;
    t.weight_bytes = static_cast<uint64_t>(4 * layout_.dim());
    t.other_bytes = static_cast<uint64_t>(m.size() * (layout_.dim() * (4 * splits + 1) + 4 * layout_.spec.rope + 12));
    t.flops = static_cast<uint64_t>(m.size() * layout_.dim() * (splits + 8));
    if (!t.wants_regions) return;
    add_partial_reads(layout_.ids, layout_.spec, m, t.reads);
    layout_.finalizer_reads(m, t.reads);
    layout_.finalizer_writes(t.writes);
  }

 private:
  Layout layout_;
};

Status check_attrs(const InferContext& c) {
  const auto fail = [&](const std::string& problem) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("op '{}': {}", c.op_name, problem));
  };
  const double eps = c.attrs.get_double("eps", kDefaultEps);
  if (!std::isfinite(eps) || eps < 0) return fail(fmt::format("attribute 'eps' is {}, expected a number >= 0", eps));
  const int64_t splits = c.attrs.get_int("split_k", kDefaultSplitK);
  if (splits < 1) return fail(fmt::format("attribute 'split_k' is {}, expected at least 1", splits));
  return {};
}

class IndexerKFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "indexer_k"; }
  std::string_view doc() const override {
    return "indexer key: block-scaled FP8 projection, LayerNorm, RoPE, FP8 quantisation, write into the paged index "
           "cache";
  }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override {
    static const std::array<AttrSpec, 5> kAttrs{
        {{"eps", kDefaultEps, "added to the LayerNorm variance"},
         {"split_k", kDefaultSplitK, "K slices of the projection, at most one per 128-wide block"},
         {"interleave", true, "RoPE pairs (2i, 2i+1); false: (i, i + rope/2)"},
         {"hadamard", false, "rotate the key by H/sqrt(D) after RoPE (D must be a power of two)"},
         {"pow2_scale", false, "round the key's scale up to a power of two"}}};
    return kAttrs;
  }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(check_attrs(c));
    MEGARTP_TRY(expect_tensor(c, kIndexerKX, DType::kF8E4M3, {"*", "*"}));
    const Dim rows = c.inputs[kIndexerKX].shape[0];
    const int64_t depth = MEGARTP_TRY(const_dim(c, kIndexerKX, 1));
    const int64_t k_blocks = ceil_div(depth, kBlockK);
    MEGARTP_TRY(expect_tensor(c, kIndexerKXScale, DType::kF32, {rows, k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kIndexerKWeight, DType::kF8E4M3, {"*", depth}));
    const int64_t dim = MEGARTP_TRY(const_dim(c, kIndexerKWeight, 0));
    if (dim > kIndexerKMaxDim)
      return tl::unexpected(shape_error(c, kIndexerKWeight, fmt::format("at most {} rows", kIndexerKMaxDim)));
    if (c.attrs.get_bool("hadamard", false) && !is_power_of_two(dim))
      return tl::unexpected(shape_error(c, kIndexerKWeight, "a power of two of rows for the Hadamard rotation"));
    MEGARTP_TRY(expect_tensor(c, kIndexerKWeightScale, DType::kF32, {ceil_div(dim, kBlockN), k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kIndexerKNormW, DType::kBF16, {dim}));
    MEGARTP_TRY(expect_tensor(c, kIndexerKNormB, DType::kBF16, {dim}));
    MEGARTP_TRY(expect_tensor(c, kIndexerKPositions, DType::kI32, {rows}));
    MEGARTP_TRY(expect_tensor(c, kIndexerKCosSin, DType::kF32, {"*", "*"}));
    const int64_t rope = MEGARTP_TRY(const_dim(c, kIndexerKCosSin, 1));
    if (rope % 2 != 0 || rope > dim)
      return tl::unexpected(shape_error(c, kIndexerKCosSin, fmt::format("an even number of columns up to {}", dim)));
    MEGARTP_TRY(expect_tensor(c, kIndexerKSlotMapping, DType::kI32, {rows}));
    MEGARTP_TRY(expect_tensor(c, kIndexerKCache, DType::kU8, {"*", index_page_bytes(dim)}));
    return InferResult{{}, {kIndexerKCache}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const auto& attrs = c.op().attrs;
    const int64_t depth = c.input_dims(kIndexerKX)[1];
    const int64_t splits = clamp_splits(depth, attrs.get_int("split_k", kDefaultSplitK));
    const bool is_fused = c.finalizer() == FinalizerMode::kFused;
    Layout l;
    l.name = c.op().name;
    l.rows = c.input_dims(kIndexerKX)[0];
    l.block_n = block_n(c.num_sms());
    l.final_rows = finalizer_rows(l.rows, 1, is_fused || c.any_shape() ? 0 : gpu_workers(c.num_sms()), kGpuFinalRows);
    l.spec.gemm.k = static_cast<uint32_t>(depth);
    l.spec.gemm.splits = static_cast<uint32_t>(splits);
    l.spec.gemm.segment_rows[0] = static_cast<uint32_t>(c.input_dims(kIndexerKWeight)[0]);
    l.spec.rope = static_cast<uint32_t>(c.input_dims(kIndexerKCosSin)[1]);
    l.spec.num_positions = static_cast<uint32_t>(c.input_dims(kIndexerKCosSin)[0]);
    l.spec.num_pages = static_cast<uint32_t>(c.input_dims(kIndexerKCache)[0]);
    l.spec.eps = static_cast<float>(attrs.get_double("eps", kDefaultEps));
    l.spec.interleave = attrs.get_bool("interleave", true) ? 1 : 0;
    l.spec.hadamard = attrs.get_bool("hadamard", false) ? 1 : 0;
    l.spec.pow2_scale = attrs.get_bool("pow2_scale", false) ? 1 : 0;
    for (uint32_t i = 0; i < kInputs.size(); ++i) l.ids[i] = c.input(i);
    l.ids[kIndexerKPartial] = c.add_workspace("partial", DType::kF32, {splits, l.rows, l.dim()}, true);
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::make_unique<GemmStage>(l, is_fused));
    if (!is_fused) stages.push_back(std::make_unique<FinalizeStage>(l));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override { return indexer_k_reference(c); }
  void run_tile(const CpuTile& t) const override { indexer_k_run_tile(t); }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(IndexerKSpec) / 4) return fail("wrong number of spec words");
    const auto s = decode_spec<IndexerKSpec>(c.spec);
    const int64_t dim = s.gemm.segment_rows[0];
    if (s.gemm.segment_rows[1] != 0 || dim == 0 || dim > kIndexerKMaxDim || s.gemm.splits == 0 || s.rope == 0 ||
        s.rope % 2 != 0 || s.rope > dim || (s.hadamard != 0 && !is_power_of_two(dim)) || s.interleave > 1 ||
        s.hadamard > 1 || s.pow2_scale > 1)
      return fail("the spec is out of range: " + describe_spec(c.spec));
    const uint32_t opcode = c.instruction.opcode;
    const uint32_t* words = c.instruction.payload;
    if (opcode == kOpcode_indexer_k_finalize) {
      if (abi::num_payload(c.instruction) != sizeof(IndexerKFinalizePayload) / 4)
        return fail("wrong number of payload words");
      return check_finalizer(c, s, {words[0], words[1], words[2]});
    }
    if (abi::num_payload(c.instruction) != kFp8GemmPayloadWords) return fail("wrong number of payload words");
    MEGARTP_TRY(check_fp8_gemm(kind(), s.gemm, c, indexer_k_gemm_slots()));
    if (opcode == kOpcode_indexer_k_gemm) return {};
    if (c.instruction.join_counter == abi::kNoJoin) return fail("a fused tile has no join counter");
    return check_finalizer(c, s, {words[0], words[1], words[5]});
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    const auto s = decode_spec<IndexerKSpec>(c.spec);
    const uint32_t* words = c.instruction.payload;
    const Range m{words[0], int64_t{words[0]} + words[1]};  // the same words in every payload
    if (c.instruction.opcode == kOpcode_indexer_k_finalize) {
      add_partial_reads(kSlotIds, s, m, out.reads);
      add_finalizer_reads(kSlotIds, s, m, out.reads);
      add_finalizer_writes(kSlotIds, s, out.writes);
      return;
    }
    add_fp8_gemm_regions(slot_ids(indexer_k_gemm_slots()), s.gemm, decode_fp8_gemm_payload(words), out.reads,
                         out.writes);
    if (c.instruction.opcode != kOpcode_indexer_k_fused) return;
    add_finalizer_reads(kSlotIds, s, m, out.reads);  // any tile may be the last arriver
    add_partial_reads(kSlotIds, s, m, out.final_reads);
    add_finalizer_reads(kSlotIds, s, m, out.final_reads);
    add_finalizer_writes(kSlotIds, s, out.final_writes);
  }

  std::string describe_payload(uint32_t opcode, std::span<const uint32_t> words) const override {
    if (opcode != kOpcode_indexer_k_finalize) return describe_fp8_gemm_payload(words);
    const auto p = decode_spec<IndexerKFinalizePayload>(words);
    return fmt::format("m {}..{}", p.m_begin, uint64_t{p.m_begin} + p.m_count);
  }
  std::string describe_spec(std::span<const uint32_t> words) const override {
    const auto s = decode_spec<IndexerKSpec>(words);
    return fmt::format("{} rope={} positions={} pages={} eps={} interleave={} hadamard={} pow2={}",
                       describe_fp8_gemm_spec(s.gemm), s.rope, s.num_positions, s.num_pages, s.eps, s.interleave,
                       s.hadamard, s.pow2_scale);
  }

 private:
  static Status fail(const std::string& problem) { return make_error(ErrorCode::kParse, "indexer_k: " + problem); }

  static Status check_finalizer(const InstructionCheck& c, const IndexerKSpec& s, const IndexerKFinalizePayload& p) {
    const int64_t dim = s.gemm.segment_rows[0];
    if (int64_t{p.m_begin} + p.m_count > p.m_total)
      return fail(fmt::format("rows {}+{} of {}", p.m_begin, p.m_count, p.m_total));
    if (!c.operand_is(kIndexerKPartial, DType::kF32, {s.gemm.splits, p.m_total, dim}) ||
        !c.operand_is(kIndexerKNormW, DType::kBF16, {dim}) || !c.operand_is(kIndexerKNormB, DType::kBF16, {dim}) ||
        !c.operand_is(kIndexerKPositions, DType::kI32, {p.m_total}) ||
        !c.operand_is(kIndexerKCosSin, DType::kF32, {s.num_positions, s.rope}) ||
        !c.operand_is(kIndexerKSlotMapping, DType::kI32, {p.m_total}) ||
        !c.operand_is(kIndexerKCache, DType::kU8, {s.num_pages, index_page_bytes(dim)}))
      return fail("an operand of the finalizer does not fit the spec");
    return {};
  }
};

}  // namespace

const OpFamily& indexer_k_family() {
  static const IndexerKFamily family;
  return family;
}

}  // namespace megartp::ops
