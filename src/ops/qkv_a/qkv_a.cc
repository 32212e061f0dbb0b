// qkv_a: shape inference, tiles and regions, instruction check, descriptions.
#include "ops/qkv_a/qkv_a.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/common/paged_cache.h"
#include "ops/common/quant.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

// Input positions equal operand slots up to the cache; outputs follow the partials.
static_assert(kQkvACache == 11 && kQkvAKv == kQkvAPartial + 3 && kQkvANumSlots <= abi::kOperandSlots);

constexpr std::array<std::string_view, 12> kInputs{"x",         "x_scale",         "q_a_proj",     "q_a_proj_scale",
                                                   "kv_a_proj", "kv_a_proj_scale", "q_norm",       "kv_norm",
                                                   "positions", "cos_sin",         "slot_mapping", "mla_kv_cache"};
constexpr std::array<OpcodeInfo, 3> kOpcodes{{{kOpcode_qkv_a_fused, "qkv_a.fused"},
                                              {kOpcode_qkv_a_gemm, "qkv_a.gemm"},
                                              {kOpcode_qkv_a_finalize, "qkv_a.finalize"}}};

constexpr double kDefaultEps = 1e-5;
constexpr int64_t kDefaultSplitK = kPlainSplits;
const std::array<AttrSpec, 4>& attr_table() {
  static const std::array<AttrSpec, 4> table{
      {{"eps", kDefaultEps, "epsilon of both RMS norms"},
       {"split_k", kDefaultSplitK, "K splits of the GEMM, at most one per 128-wide block; plans for a GPU choose"},
       {"pow2_scale", false, "round the scales of q up to powers of two"},
       {"mla_pow2_scale", true, "round the scales of the cache record up to powers of two"}}};
  return table;
}

Status bad_attr(const InferContext& c, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("op '{}': {}", c.op_name, what));
}

Status check_attrs(const InferContext& c) {
  const double eps = c.attrs.get_double("eps", kDefaultEps);
  if (!std::isfinite(eps) || eps < 0)
    return bad_attr(c, fmt::format("attribute 'eps' is {}, expected a number >= 0", eps));
  const int64_t split_k = c.attrs.get_int("split_k", kDefaultSplitK);
  if (split_k < 1) return bad_attr(c, fmt::format("attribute 'split_k' is {}, expected at least 1", split_k));
  return {};
}

// Boxes that finalizing rows writes. Publication 0 is what the next projections need. `cache_dims`: the cache is hit
// where the slot mapping says.
void add_finalizer_writes(std::span<const TensorId> ids, const QkvASpec& spec, std::span<const int64_t> cache_dims,
                          const Range& m, uint32_t parts, std::vector<Access>& writes) {
  const std::pair<int64_t, int64_t> rows{m.begin, m.end};
  const int64_t n_q = q_lora(spec);
  if ((parts & kQkvAPartQ) != 0) {
    writes.push_back({ids[kQkvAQ], Box::of({rows, {0, n_q}}), 0});
    writes.push_back({ids[kQkvAQScale], Box::of({rows, {0, ceil_div(n_q, kQuantGroup)}}), 0});
  }
  if ((parts & kQkvAPartKv) == 0) return;
  writes.push_back({ids[kQkvAKv], Box::of({rows, {0, int64_t{spec.kv_lora} + spec.rope}}), 1});
  writes.push_back({ids[kQkvACache], Box::of({{0, cache_dims[0]}, {0, cache_dims[1]}}), 1, true});
}
// The runtime arguments that finalizing rows looks at.
void add_finalizer_reads(std::span<const TensorId> ids, const Range& m, uint32_t parts, std::vector<Access>& reads) {
  if ((parts & kQkvAPartKv) == 0) return;
  reads.push_back({ids[kQkvAPositions], Box::of({{m.begin, m.end}})});
  reads.push_back({ids[kQkvASlotMapping], Box::of({{m.begin, m.end}})});
}
void add_partial_reads(std::span<const TensorId> ids, const QkvASpec& spec, const Range& m, uint32_t parts,
                       std::vector<Access>& reads) {
  const int64_t begin = (parts & kQkvAPartQ) != 0 ? 0 : q_lora(spec);
  const int64_t end = (parts & kQkvAPartKv) != 0 ? total_n(spec.gemm) : q_lora(spec);
  reads.push_back({ids[kQkvAPartial], Box::of({{0, spec.gemm.splits}, {m.begin, m.end}, {begin, end}})});
}

// What both stages and the fused one know.
struct Layout {
  QkvASpec spec;
  int64_t m;
  int64_t block_n;
  std::array<TensorId, kQkvANumSlots> ids;
  std::vector<int64_t> cache_dims;

  int64_t n_q() const { return q_lora(spec); }
  int64_t n_kv() const { return int64_t{spec.kv_lora} + spec.rope; }
  int64_t n_total() const { return total_n(spec.gemm); }

  void add_row_writes(int64_t row, uint32_t parts, std::vector<Access>& writes) const {
    add_finalizer_writes(ids, spec, cache_dims, {row, row + 1}, parts, writes);
  }
  void add_row_reads(int64_t row, uint32_t parts, std::vector<Access>& reads) const {
    add_finalizer_reads(ids, {row, row + 1}, parts, reads);
  }
};

Layout make_layout(LowerContext& c) {
  Layout l{};
  const auto& attrs = c.op().attrs;
  l.m = c.input_dims(kQkvAX)[0];
  l.block_n = block_n(c.num_sms());
  const int64_t k = c.input_dims(kQkvAX)[1];
  const int64_t n_kv = c.input_dims(kQkvAKvProj)[0];
  const int64_t rope = c.input_dims(kQkvACosSin)[1];
  const int64_t tiles = ceil_div(c.input_dims(kQkvAQProj)[0], kBlockN) + ceil_div(n_kv, kBlockN);
  const int64_t splits = gemm_splits(attrs.get_int("split_k", 0), c.num_sms(), tiles, k);
  const auto word = [](int64_t v) { return static_cast<uint32_t>(v); };
  l.spec.gemm = {word(k), word(splits), {word(c.input_dims(kQkvAQProj)[0]), word(n_kv)}};
  l.spec.kv_lora = word(n_kv - rope);
  l.spec.rope = word(rope);
  l.spec.eps = static_cast<float>(attrs.get_double("eps", kDefaultEps));
  l.spec.pow2_scale = attrs.get_bool("pow2_scale", false) ? 1 : 0;
  l.spec.mla_pow2_scale = attrs.get_bool("mla_pow2_scale", true) ? 1 : 0;
  for (uint32_t i = 0; i < kInputs.size(); ++i) l.ids[i] = c.input(i);
  l.ids[kQkvAPartial] = c.add_workspace("partial", DType::kF32, {splits, l.m, l.n_total()}, true);
  for (uint32_t i = 0; i < 3; ++i) l.ids[kQkvAQ + i] = c.output(i);
  l.cache_dims = c.input_dims(kQkvACache);
  return l;
}

class GemmStage final : public Stage {
 public:
  GemmStage(const Layout& layout, bool fused)
      : layout_(layout),
        fused_(fused),
        tiles_({layout.ids[kQkvAX], layout.ids[kQkvAXScale], layout.ids[kQkvAPartial]}, layout.spec.gemm, layout.m,
               layout.block_n) {
    opcode = fused ? kOpcode_qkv_a_fused : kOpcode_qkv_a_gemm;
    spec = encode_spec(layout.spec);
    slots.assign(layout.ids.begin(), layout.ids.end());
    num_tiles = tiles_.num_tiles();
    if (fused) {
      num_join_groups = tiles_.num_m_tiles();
      num_final_tiles = static_cast<uint32_t>(layout.m);
    } else {
      for (uint32_t s = 0; s < kQkvANumSlots; ++s)
        if ((s >= kQkvAQNorm && s <= kQkvACache) || s > kQkvAPartial) slots[s] = kInvalidId;
    }
  }
  void tile(uint32_t tile_idx, TileDesc& out) const override {
    tiles_.tile(tile_idx, out);
    if (fused_) out.join_group = tiles_.coordinates(tile_idx).m_tile;
  }
  void final_tile(uint32_t final_idx, FinalDesc& out) const override {
    out.join_group = static_cast<uint32_t>(final_idx / block_m(layout_.m));
    layout_.add_row_reads(final_idx, kQkvAAllParts, out.reads);
    layout_.add_row_writes(final_idx, kQkvAAllParts, out.writes);
  }

 private:
  Layout layout_;
  bool fused_;
  Fp8GemmTiles tiles_;
};

// A tile a row; on a GPU, which has more workers than rows, one for q and another for kv: all of q first.
class FinalizeStage final : public Stage {
 public:
  FinalizeStage(const Layout& layout, bool has_tile_a_part) : layout_(layout), has_tile_a_part_(has_tile_a_part) {
    opcode = kOpcode_qkv_a_finalize;
    spec = encode_spec(layout.spec);
    slots.assign(layout.ids.begin(), layout.ids.end());
    std::fill_n(slots.begin(), kQkvAQNorm, kInvalidId);
    num_tiles = static_cast<uint32_t>(layout.m * (has_tile_a_part ? 2 : 1));
  }
  void tile(uint32_t tile_idx, TileDesc& out) const override {
    const auto m = static_cast<uint32_t>(layout_.m);
    const uint32_t row = tile_idx % m;
    const uint32_t parts = !has_tile_a_part_ ? kQkvAAllParts : tile_idx < m ? kQkvAPartQ : kQkvAPartKv;
    const int64_t splits = layout_.spec.gemm.splits;
    const int64_t n_q = (parts & kQkvAPartQ) != 0 ? layout_.n_q() : 0;
    const int64_t n_kv = (parts & kQkvAPartKv) != 0 ? layout_.n_kv() : 0;
    const int64_t kv_lora = n_kv != 0 ? layout_.spec.kv_lora : 0;
    out.set_payload({row, m, parts});
    // Partials in; q with scales, kv and the record out.
    out.other_bytes = static_cast<uint64_t>(4 * splits * (n_q + n_kv) + n_q + 4 * ceil_div(n_q, kQuantGroup) +
                                            2 * n_kv + (n_kv != 0 ? mla_record_bytes(kv_lora, layout_.spec.rope) : 0));
    out.weight_bytes = static_cast<uint64_t>(2 * (n_q + kv_lora));
    out.flops = static_cast<uint64_t>((n_q + n_kv) * (splits + 4));
    if (!out.wants_regions) return;
    add_partial_reads(layout_.ids, layout_.spec, {row, int64_t{row} + 1}, parts, out.reads);
    layout_.add_row_reads(row, parts, out.reads);
    layout_.add_row_writes(row, parts, out.writes);
  }

 private:
  Layout layout_;
  bool has_tile_a_part_;
};

class QkvAFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "qkv_a"; }
  std::string_view doc() const override {
    return "FP8 projection to q and kv latents; norms, RoPE of the key part, FP8 q, MLA cache record";
  }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override { return attr_table(); }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(check_attrs(c));
    MEGARTP_TRY(expect_tensor(c, kQkvAX, DType::kF8E4M3, {"*", "*"}));
    MEGARTP_TRY(expect_tensor(c, kQkvAQProj, DType::kF8E4M3, {"*", "*"}));
    MEGARTP_TRY(expect_tensor(c, kQkvAKvProj, DType::kF8E4M3, {"*", "*"}));
    MEGARTP_TRY(expect_tensor(c, kQkvACosSin, DType::kF32, {"*", "*"}));
    const Dim m = c.inputs[kQkvAX].shape[0];
    const int64_t k = MEGARTP_TRY(const_dim(c, kQkvAX, 1));
    const int64_t n_q = MEGARTP_TRY(const_dim(c, kQkvAQProj, 0));
    const int64_t n_kv = MEGARTP_TRY(const_dim(c, kQkvAKvProj, 0));
    const int64_t rope = MEGARTP_TRY(const_dim(c, kQkvACosSin, 1));
    const int64_t k_blocks = ceil_div(k, kQuantGroup);
    if (rope % 2 != 0 || rope >= n_kv)
      return tl::unexpected(shape_error(c, kQkvACosSin, fmt::format("[POS, rope] with an even rope below {}", n_kv)));
    if (n_q > kQkvAMaxRow || n_kv > kQkvAMaxRow || n_q + n_kv > kQkvAMaxRow)
      return make_error(ErrorCode::kOutOfResources,
                        fmt::format("op '{}': a row of {} + {} values does not fit the finalizer's scratch of {}",
                                    c.op_name, n_q, n_kv, kQkvAMaxRow));
    const Dim q_groups = ceil_div(n_q, kQuantGroup);
    MEGARTP_TRY(expect_tensor(c, kQkvAXScale, DType::kF32, {m, k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kQkvAQProj, DType::kF8E4M3, {n_q, k}));
    MEGARTP_TRY(expect_tensor(c, kQkvAQProjScale, DType::kF32, {q_groups, k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kQkvAKvProj, DType::kF8E4M3, {n_kv, k}));
    MEGARTP_TRY(expect_tensor(c, kQkvAKvProjScale, DType::kF32, {ceil_div(n_kv, kBlockN), k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kQkvAQNorm, DType::kBF16, {n_q}));
    MEGARTP_TRY(expect_tensor(c, kQkvAKvNorm, DType::kBF16, {n_kv - rope}));
    MEGARTP_TRY(expect_tensor(c, kQkvAPositions, DType::kI32, {m}));
    MEGARTP_TRY(expect_tensor(c, kQkvASlotMapping, DType::kI32, {m}));
    MEGARTP_TRY(expect_tensor(c, kQkvACache, DType::kU8, {"*", kPageTokens * mla_record_bytes(n_kv - rope, rope)}));
    return InferResult{
        {{"q", DType::kF8E4M3, {m, n_q}}, {"q_scale", DType::kF32, {m, q_groups}}, {"kv", DType::kBF16, {m, n_kv}}},
        {kQkvACache}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const Layout layout = make_layout(c);
    const bool fused = c.finalizer() == FinalizerMode::kFused;
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::make_unique<GemmStage>(layout, fused));
    stages.back()->name = fused ? c.op().name : c.op().name + ".gemm";
    if (!fused) {
      stages.push_back(std::make_unique<FinalizeStage>(layout, c.num_sms() != 0 && !c.any_shape()));
      stages.back()->name = c.op().name + ".finalize";
    }
    return stages;
  }

  Status reference(const ReferenceContext& c) const override { return qkv_a_reference(c); }
  void run_tile(const CpuTile& t) const override { run_qkv_a_tile(t); }
  Status check_instruction(const InstructionCheck& c) const override { return check_qkv_a(c); }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    const auto s = decode_spec<QkvASpec>(c.spec);
    const uint32_t* words = c.instruction.payload;
    const auto finalize = [&](const Range& m, uint32_t parts, std::vector<Access>& reads, std::vector<Access>& writes) {
      add_partial_reads(kSlotIds, s, m, parts, reads);
      add_finalizer_reads(kSlotIds, m, parts, reads);
      add_finalizer_writes(kSlotIds, s, c.operands[kQkvACache].dims, m, parts, writes);
    };
    if (c.instruction.opcode == kOpcode_qkv_a_finalize)
      return finalize({words[0], int64_t{words[0]} + 1}, words[2], out.reads, out.writes);
    const Fp8GemmPayload p = decode_fp8_gemm_payload(words);
    add_fp8_gemm_regions(slot_ids(kQkvAGemmSlots), s.gemm, p, out.reads, out.writes);
    if (c.instruction.opcode == kOpcode_qkv_a_fused)
      finalize({p.m_begin, int64_t{p.m_begin} + p.m_count}, kQkvAAllParts, out.final_reads, out.final_writes);
  }

  std::string describe_payload(uint32_t opcode, std::span<const uint32_t> p) const override {
    if (opcode != kOpcode_qkv_a_finalize) return describe_fp8_gemm_payload(p);
    if (p.size() < kQkvAFinalizePayloadWords) return "?";
    const std::string_view part = p[2] == kQkvAPartQ ? ", q" : p[2] == kQkvAPartKv ? ", kv" : "";
    return fmt::format("row {}{}", p[0], part);
  }
  std::string describe_spec(std::span<const uint32_t> s) const override {
    const auto spec = decode_spec<QkvASpec>(s);
    return fmt::format("{} kv_lora={} rope={} eps={} pow2={} mla_pow2={}", describe_fp8_gemm_spec(spec.gemm),
                       spec.kv_lora, spec.rope, spec.eps, spec.pow2_scale, spec.mla_pow2_scale);
  }
};

Status refuse(std::string_view what) { return make_error(ErrorCode::kParse, fmt::format("qkv_a: {}", what)); }

// Everything that the finalizer touches besides the partials' split and row strides, for rows below m_total.
Status check_finalizer_operands(const QkvASpec& spec, int64_t m_total, const InstructionCheck& c) {
  const int64_t n_q = q_lora(spec);
  const int64_t n_kv = int64_t{spec.kv_lora} + spec.rope;
  const int64_t page = kPageTokens * mla_record_bytes(spec.kv_lora, spec.rope);
  const auto fits = [&](QkvASlot slot, DType dtype, std::initializer_list<int64_t> dims) -> Status {
    if (c.operand_is(slot, dtype, dims)) return {};
    return refuse(fmt::format("operand {} does not fit the spec", uint32_t{slot}));
  };
  MEGARTP_TRY(fits(kQkvAQNorm, DType::kBF16, {n_q}));
  MEGARTP_TRY(fits(kQkvAKvNorm, DType::kBF16, {spec.kv_lora}));
  MEGARTP_TRY(fits(kQkvAPositions, DType::kI32, {m_total}));
  MEGARTP_TRY(fits(kQkvACosSin, DType::kF32, {-1, spec.rope}));
  MEGARTP_TRY(fits(kQkvASlotMapping, DType::kI32, {m_total}));
  MEGARTP_TRY(fits(kQkvACache, DType::kU8, {-1, page}));
  MEGARTP_TRY(fits(kQkvAPartial, DType::kF32, {spec.gemm.splits, m_total, n_q + n_kv}));
  MEGARTP_TRY(fits(kQkvAQ, DType::kF8E4M3, {m_total, n_q}));
  MEGARTP_TRY(fits(kQkvAQScale, DType::kF32, {m_total, ceil_div(n_q, kQuantGroup)}));
  MEGARTP_TRY(fits(kQkvAKv, DType::kBF16, {m_total, n_kv}));
  return {};
}

}  // namespace

Status check_qkv_a(const InstructionCheck& c) {
  if (c.spec.size() != sizeof(QkvASpec) / 4) return refuse("wrong number of spec words");
  const auto spec = decode_spec<QkvASpec>(c.spec);
  const int64_t n_kv = int64_t{spec.kv_lora} + spec.rope;
  const Fp8GemmSpec& gemm = spec.gemm;
  const bool sizes_ok = spec.kv_lora != 0 && spec.rope != 0 && spec.rope % 2 == 0 && n_kv == gemm.segment_rows[1] &&
                        q_lora(spec) != 0 && q_lora(spec) + n_kv <= kQkvAMaxRow;
  const bool splits_ok =
      gemm.k != 0 && gemm.k <= INT32_MAX && gemm.splits != 0 && gemm.splits <= ceil_div<int64_t>(gemm.k, kBlockK);
  const bool numbers_ok = spec.pow2_scale <= 1 && spec.mla_pow2_scale <= 1 && std::isfinite(spec.eps) && spec.eps >= 0;
  if (!sizes_ok || !splits_ok || !numbers_ok) return refuse("the spec makes no sense");
  const uint32_t words = abi::num_payload(c.instruction);
  if (c.instruction.opcode == kOpcode_qkv_a_finalize) {
    if (words != kQkvAFinalizePayloadWords) return refuse("wrong number of payload words");
    const QkvAFinalizePayload p{c.instruction.payload[0], c.instruction.payload[1], c.instruction.payload[2]};
    if (p.row >= p.m_total) return refuse(fmt::format("row {} of {}", p.row, p.m_total));
    if (p.parts == 0 || p.parts > kQkvAAllParts) return refuse(fmt::format("parts {} of a row", p.parts));
    return check_finalizer_operands(spec, p.m_total, c);
  }
  if (words != kFp8GemmPayloadWords) return refuse("wrong number of payload words");
  MEGARTP_TRY(check_fp8_gemm("qkv_a", spec.gemm, c, kQkvAGemmSlots));
  if (c.instruction.opcode == kOpcode_qkv_a_gemm) return {};
  if (c.instruction.join_counter == abi::kNoJoin) return refuse("a fused tile has no join counter");
  return check_finalizer_operands(spec, decode_fp8_gemm_payload(c.instruction.payload).m_total, c);
}

const OpFamily& qkv_a_family() {
  static const QkvAFamily family;
  return family;
}

}  // namespace megartp::ops
