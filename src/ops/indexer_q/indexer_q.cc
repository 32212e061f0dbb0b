// indexer_q: shape inference, tiles and regions, instruction check.
#include "ops/indexer_q/indexer_q.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/hadamard.h"
#include "ops/indexer_q/indexer_q_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {

Fp8GemmSlots indexer_q_gemm_slots() {
  Fp8GemmSlots slots;
  slots.a = kIndexerQX;
  slots.a_scale = kIndexerQXScale;
  slots.segments[0] = {kIndexerQWeight, kIndexerQWeightScale};
  slots.partial = kIndexerQPartial;
  return slots;
}

namespace {

constexpr std::array<std::string_view, 7> kInputs{"x",         "x_scale", "wq_b", "wq_b_scale", "gate_partials",
                                                  "positions", "cos_sin"};
static_assert(kInputs.size() == kIndexerQPartial);
constexpr std::array<OpcodeInfo, 3> kOpcodes{{{kOpcode_indexer_q_fused, "indexer_q.fused"},
                                              {kOpcode_indexer_q_gemm, "indexer_q.gemm"},
                                              {kOpcode_indexer_q_finalize, "indexer_q.finalize"}}};
constexpr int64_t kDefaultSplitK = 4;
constexpr int64_t kGpuFinalRows = 8;  // a warp has two at a time
constexpr int64_t kMaxHeads = int64_t{1} << 16;

void add_finalizer_reads(std::span<const TensorId> ids, const IndexerQSpec& spec, const Range& m, int64_t head,
                         std::vector<Access>& reads) {
  reads.push_back({ids[kIndexerQGatePartials], Box::of({{0, spec.gate_splits}, {m.begin, m.end}, {head, head + 1}})});
  reads.push_back({ids[kIndexerQPositions], Box::of({{m.begin, m.end}})});
  reads.push_back({ids[kIndexerQCosSin], Box::of({{0, spec.num_positions}, {0, spec.rope}})});
}
void add_finalizer_writes(std::span<const TensorId> ids, const IndexerQSpec& spec, const Range& m, int64_t head,
                          std::vector<Access>& writes) {
  writes.push_back({ids[kIndexerQQ], Box::of({{m.begin, m.end}, {head, head + 1}, {0, spec.head_dim}})});
  for (const IndexerQSlot slot : {kIndexerQScale, kIndexerQWeights, kIndexerQGate})
    writes.push_back({ids[slot], Box::of({{m.begin, m.end}, {head, head + 1}})});
}
void add_partial_reads(std::span<const TensorId> ids, const IndexerQSpec& spec, const Range& m, int64_t head,
                       std::vector<Access>& reads) {
  reads.push_back(
      {ids[kIndexerQPartial],
       Box::of({{0, spec.gemm.splits}, {m.begin, m.end}, {head * spec.head_dim, (head + 1) * spec.head_dim}})});
}

// Everything that the stages of one op know.
struct Layout {
  std::string name;
  IndexerQSpec spec{};
  std::array<TensorId, kIndexerQNumSlots> ids{};
  int64_t rows = 0;
  int64_t block_n = 0;     // of a GEMM tile; a head where finalizers are fused
  int64_t final_rows = 0;  // of a finalizer's tile

  // Join groups, final tiles and finalizer tiles have one numbering: rows, then head.
  uint32_t num_finals() const { return static_cast<uint32_t>(ceil_div(rows, final_rows) * spec.heads); }
  uint32_t head_of(uint32_t final_idx) const { return final_idx % spec.heads; }
  Range rows_of(uint32_t final_idx) const { return block_range(rows, final_rows, final_idx / spec.heads); }

  void finalizer_reads(uint32_t final_idx, std::vector<Access>& reads) const {
    add_finalizer_reads(ids, spec, rows_of(final_idx), head_of(final_idx), reads);
  }
  void finalizer_writes(uint32_t final_idx, std::vector<Access>& writes) const {
    add_finalizer_writes(ids, spec, rows_of(final_idx), head_of(final_idx), writes);
  }
};

class GemmStage final : public Stage {
 public:
  GemmStage(const Layout& layout, bool is_fused)
      : layout_(layout),
        tiles_({layout.ids[kIndexerQX], layout.ids[kIndexerQXScale], layout.ids[kIndexerQPartial]}, layout.spec.gemm,
               layout.rows, layout.block_n),
        is_fused_(is_fused) {
    name = is_fused ? layout.name : layout.name + ".gemm";
    opcode = is_fused ? kOpcode_indexer_q_fused : kOpcode_indexer_q_gemm;
    spec = encode_spec(layout.spec);
    slots.assign(layout.ids.begin(), layout.ids.end());
    if (!is_fused) {
      std::fill(slots.begin() + kIndexerQGatePartials, slots.begin() + kIndexerQPartial, kInvalidId);
      std::fill(slots.begin() + kIndexerQPartial + 1, slots.end(), kInvalidId);
    }
    num_tiles = tiles_.num_tiles();
    num_join_groups = num_final_tiles = is_fused ? layout.num_finals() : 0;
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    tiles_.tile(tile_idx, t);
    if (!is_fused_) return;
    // Any tile of the group may be the last arriver, so each waits for what the finalizer reads.
    const Fp8GemmTiles::Coordinates at = tiles_.coordinates(tile_idx);
    t.join_group = at.m_tile * layout_.spec.heads + at.n_tile;
    if (t.wants_regions) layout_.finalizer_reads(t.join_group, t.reads);
  }
  void final_tile(uint32_t final_idx, FinalDesc& f) const override {
    f.join_group = final_idx;
    layout_.finalizer_reads(final_idx, f.reads);
    layout_.finalizer_writes(final_idx, f.writes);
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
    opcode = kOpcode_indexer_q_finalize;
    spec = encode_spec(layout.spec);
    slots.assign(layout.ids.begin(), layout.ids.end());
    std::fill(slots.begin(), slots.begin() + kIndexerQGatePartials, kInvalidId);
    num_tiles = layout.num_finals();
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    const IndexerQSpec& s = layout_.spec;
    const Range m = layout_.rows_of(tile_idx);
    const int64_t head = layout_.head_of(tile_idx);
    t.set_payload({static_cast<uint32_t>(m.begin), static_cast<uint32_t>(m.size()), static_cast<uint32_t>(head),
                   static_cast<uint32_t>(layout_.rows)});
    const auto rows = static_cast<uint64_t>(m.size());
    const uint64_t dim = s.head_dim;
    t.other_bytes = rows * (dim * (4 * s.gemm.splits + 1) + 4 * (uint64_t{s.rope} + s.gate_splits + 4));
    t.flops = rows * (dim * (s.gemm.splits + 4) + s.gate_splits);
    if (!t.wants_regions) return;
    add_partial_reads(layout_.ids, s, m, head, t.reads);
    layout_.finalizer_reads(tile_idx, t.reads);
    layout_.finalizer_writes(tile_idx, t.writes);
  }

 private:
  Layout layout_;
};

Status bad_attr(const InferContext& c, const std::string& problem) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("op '{}': {}", c.op_name, problem));
}

Status check_attrs(const InferContext& c) {
  for (const std::string_view name : {"heads", "score_scale"})
    if (c.attrs.find(name) == nullptr) return bad_attr(c, fmt::format("attribute '{}' is required", name));
  const int64_t heads = c.attrs.get_int("heads", 0);
  if (heads < 1 || heads > kMaxHeads)
    return bad_attr(c, fmt::format("attribute 'heads' is {}, expected 1 to {}", heads, kMaxHeads));
  const double scale = c.attrs.get_double("score_scale", 0);
  if (!std::isfinite(scale)) return bad_attr(c, fmt::format("attribute 'score_scale' is {}", scale));
  const int64_t splits = c.attrs.get_int("split_k", kDefaultSplitK);
  if (splits < 1) return bad_attr(c, fmt::format("attribute 'split_k' is {}, expected at least 1", splits));
  return {};
}

class IndexerQFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "indexer_q"; }
  std::string_view doc() const override {
    return "indexer queries: block-scaled FP8 projection, RoPE, FP8 quantisation of each head; head gate folded into "
           "the weights";
  }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override {
    static const std::array<AttrSpec, 6> kAttrs{
        {{"heads", int64_t{0}, "index heads (required)"},
         {"split_k", kDefaultSplitK, "K slices of the projection, at most one per 128-wide block"},
         {"interleave", true, "RoPE pairs (2i, 2i+1); false: (i, i + rope/2)"},
         {"hadamard", false, "rotate each head by H/sqrt(D) after RoPE (D must be a power of two)"},
         {"pow2_scale", true, "round the scale of each head up to a power of two"},
         {"score_scale", 0.0, "constant factor of the weights, 1/sqrt(D * heads) (required)"}}};
    return kAttrs;
  }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(check_attrs(c));
    const int64_t heads = c.attrs.get_int("heads", 0);
    MEGARTP_TRY(expect_tensor(c, kIndexerQX, DType::kF8E4M3, {"*", "*"}));
    const Dim rows = c.inputs[kIndexerQX].shape[0];
    const int64_t depth = MEGARTP_TRY(const_dim(c, kIndexerQX, 1));
    const int64_t k_blocks = ceil_div(depth, kBlockK);
    MEGARTP_TRY(expect_tensor(c, kIndexerQXScale, DType::kF32, {rows, k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kIndexerQWeight, DType::kF8E4M3, {"*", depth}));
    const int64_t width = MEGARTP_TRY(const_dim(c, kIndexerQWeight, 0));
    const int64_t dim = width / heads;
    if (width % heads != 0 || dim > kIndexerQMaxDim)
      return tl::unexpected(shape_error(c, kIndexerQWeight,
                                        fmt::format("[{} heads times at most {}, {}]", heads, kIndexerQMaxDim, depth)));
    if (c.attrs.get_bool("hadamard", false) && !is_power_of_two(dim))
      return tl::unexpected(
          shape_error(c, kIndexerQWeight, "heads of a power of two of rows for the Hadamard rotation"));
    MEGARTP_TRY(expect_tensor(c, kIndexerQWeightScale, DType::kF32, {ceil_div(width, kBlockN), k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kIndexerQGatePartials, DType::kF32, {"*", rows, heads}));
    MEGARTP_TRY(expect_tensor(c, kIndexerQPositions, DType::kI32, {rows}));
    MEGARTP_TRY(expect_tensor(c, kIndexerQCosSin, DType::kF32, {"*", "*"}));
    const int64_t rope = MEGARTP_TRY(const_dim(c, kIndexerQCosSin, 1));
    if (rope % 2 != 0 || rope > dim)
      return tl::unexpected(shape_error(c, kIndexerQCosSin, fmt::format("an even number of columns up to {}", dim)));
    return InferResult{{{"q", DType::kF8E4M3, {rows, heads, dim}},
                        {"scale", DType::kF32, {rows, heads}},
                        {"weights", DType::kF32, {rows, heads}},
                        {"gate", DType::kF32, {rows, heads}}},
                       {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const auto& attrs = c.op().attrs;
    const int64_t depth = c.input_dims(kIndexerQX)[1];
    const int64_t width = c.input_dims(kIndexerQWeight)[0];
    const int64_t splits = clamp_splits(depth, attrs.get_int("split_k", kDefaultSplitK));
    Layout l;
    l.name = c.op().name;
    l.rows = c.input_dims(kIndexerQX)[0];
    l.spec.gemm.k = static_cast<uint32_t>(depth);
    l.spec.gemm.splits = static_cast<uint32_t>(splits);
    l.spec.gemm.segment_rows[0] = static_cast<uint32_t>(width);
    l.spec.heads = static_cast<uint32_t>(c.output_dims(0)[1]);
    l.spec.head_dim = static_cast<uint32_t>(c.output_dims(0)[2]);
    l.block_n = l.spec.head_dim;
    l.final_rows = block_m(l.rows);
    if (c.finalizer() == FinalizerMode::kTasks && c.num_sms() != 0) {
      l.block_n = std::min(l.block_n, kGpuBlockN);
      if (!c.any_shape()) l.final_rows = finalizer_rows(l.rows, l.spec.heads, gpu_workers(c.num_sms()), kGpuFinalRows);
    }
    l.spec.rope = static_cast<uint32_t>(c.input_dims(kIndexerQCosSin)[1]);
    l.spec.num_positions = static_cast<uint32_t>(c.input_dims(kIndexerQCosSin)[0]);
    l.spec.gate_splits = static_cast<uint32_t>(c.input_dims(kIndexerQGatePartials)[0]);
    l.spec.score_scale = static_cast<float>(attrs.get_double("score_scale", 0));
    l.spec.interleave = attrs.get_bool("interleave", true) ? 1 : 0;
    l.spec.hadamard = attrs.get_bool("hadamard", false) ? 1 : 0;
    l.spec.pow2_scale = attrs.get_bool("pow2_scale", true) ? 1 : 0;
    for (uint32_t i = 0; i < kInputs.size(); ++i) l.ids[i] = c.input(i);
    l.ids[kIndexerQPartial] = c.add_workspace("partial", DType::kF32, {splits, l.rows, width}, true);
    for (uint32_t i = 0; i < 4; ++i) l.ids[kIndexerQQ + i] = c.output(i);
    const bool is_fused = c.finalizer() == FinalizerMode::kFused;
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::make_unique<GemmStage>(l, is_fused));
    if (!is_fused) stages.push_back(std::make_unique<FinalizeStage>(l));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override { return indexer_q_reference(c); }
  void run_tile(const CpuTile& t) const override { indexer_q_run_tile(t); }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(IndexerQSpec) / 4) return fail("wrong number of spec words");
    const auto s = decode_spec<IndexerQSpec>(c.spec);
    if (s.heads == 0 || s.heads > kMaxHeads || s.head_dim == 0 || s.head_dim > kIndexerQMaxDim ||
        s.gemm.segment_rows[0] != s.heads * s.head_dim || s.gemm.segment_rows[1] != 0 || s.gemm.splits == 0 ||
        s.rope == 0 || s.rope % 2 != 0 || s.rope > s.head_dim || s.gate_splits == 0 ||
        (s.hadamard != 0 && !is_power_of_two(s.head_dim)) || s.interleave > 1 || s.hadamard > 1 || s.pow2_scale > 1)
      return fail("the spec is out of range: " + describe_spec(c.spec));
    const uint32_t opcode = c.instruction.opcode;
    const uint32_t* words = c.instruction.payload;
    if (opcode == kOpcode_indexer_q_finalize) {
      if (abi::num_payload(c.instruction) != sizeof(IndexerQFinalizePayload) / 4)
        return fail("wrong number of payload words");
      return check_finalizer(c, s, {words[0], words[1], words[2], words[3]});
    }
    if (abi::num_payload(c.instruction) != kFp8GemmPayloadWords) return fail("wrong number of payload words");
    MEGARTP_TRY(check_fp8_gemm(kind(), s.gemm, c, indexer_q_gemm_slots()));
    if (opcode == kOpcode_indexer_q_gemm) return {};
    if (c.instruction.join_counter == abi::kNoJoin) return fail("a fused tile has no join counter");
    const Fp8GemmPayload p = decode_fp8_gemm_payload(words);
    if (p.n_begin % s.head_dim != 0 || p.n_count != s.head_dim)
      return fail(fmt::format("columns {}+{} are not one head of {}", p.n_begin, p.n_count, s.head_dim));
    return check_finalizer(c, s, {p.m_begin, p.m_count, p.n_begin / s.head_dim, p.m_total});
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    const auto s = decode_spec<IndexerQSpec>(c.spec);
    const uint32_t* words = c.instruction.payload;
    const Range m{words[0], int64_t{words[0]} + words[1]};  // the same words in every payload
    if (c.instruction.opcode == kOpcode_indexer_q_finalize) {
      add_partial_reads(kSlotIds, s, m, words[2], out.reads);
      add_finalizer_reads(kSlotIds, s, m, words[2], out.reads);
      add_finalizer_writes(kSlotIds, s, m, words[2], out.writes);
      return;
    }
    const Fp8GemmPayload p = decode_fp8_gemm_payload(words);
    add_fp8_gemm_regions(slot_ids(indexer_q_gemm_slots()), s.gemm, p, out.reads, out.writes);
    if (c.instruction.opcode != kOpcode_indexer_q_fused) return;
    const int64_t head = p.n_begin / s.head_dim;
    add_finalizer_reads(kSlotIds, s, m, head, out.reads);  // any tile may be the last arriver
    add_partial_reads(kSlotIds, s, m, head, out.final_reads);
    add_finalizer_reads(kSlotIds, s, m, head, out.final_reads);
    add_finalizer_writes(kSlotIds, s, m, head, out.final_writes);
  }

  std::string describe_payload(uint32_t opcode, std::span<const uint32_t> words) const override {
    if (opcode != kOpcode_indexer_q_finalize) return describe_fp8_gemm_payload(words);
    const auto p = decode_spec<IndexerQFinalizePayload>(words);
    return fmt::format("m {}..{}, head {}", p.m_begin, uint64_t{p.m_begin} + p.m_count, p.head);
  }
  std::string describe_spec(std::span<const uint32_t> words) const override {
    const auto s = decode_spec<IndexerQSpec>(words);
    return fmt::format(
        "{} heads={} D={} rope={} positions={} gate_splits={} score_scale={} interleave={} hadamard={} pow2={}",
        describe_fp8_gemm_spec(s.gemm), s.heads, s.head_dim, s.rope, s.num_positions, s.gate_splits, s.score_scale,
        s.interleave, s.hadamard, s.pow2_scale);
  }

 private:
  static Status fail(const std::string& problem) { return make_error(ErrorCode::kParse, "indexer_q: " + problem); }

  static Status check_finalizer(const InstructionCheck& c, const IndexerQSpec& s, const IndexerQFinalizePayload& p) {
    if (int64_t{p.m_begin} + p.m_count > p.m_total || p.head >= s.heads)
      return fail(fmt::format("rows {}+{} of {}, head {} of {}", p.m_begin, p.m_count, p.m_total, p.head, s.heads));
    const int64_t width = int64_t{s.heads} * s.head_dim;
    if (!c.operand_is(kIndexerQPartial, DType::kF32, {s.gemm.splits, p.m_total, width}) ||
        !c.operand_is(kIndexerQGatePartials, DType::kF32, {s.gate_splits, p.m_total, s.heads}) ||
        !c.operand_is(kIndexerQPositions, DType::kI32, {p.m_total}) ||
        !c.operand_is(kIndexerQCosSin, DType::kF32, {s.num_positions, s.rope}) ||
        !c.operand_is(kIndexerQQ, DType::kF8E4M3, {p.m_total, s.heads, s.head_dim}))
      return fail("an operand of the finalizer does not fit the spec");
    for (const IndexerQSlot slot : {kIndexerQScale, kIndexerQWeights, kIndexerQGate})
      if (!c.operand_is(slot, DType::kF32, {p.m_total, s.heads}))
        return fail("an output of the finalizer does not fit the spec");
    return {};
  }
};

}  // namespace

const OpFamily& indexer_q_family() {
  static const IndexerQFamily family;
  return family;
}

}  // namespace megartp::ops
