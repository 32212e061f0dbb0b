// q_absorb: shape inference, tiles and regions, instruction check.
#include "ops/q_absorb/q_absorb.h"

#include <array>

#include <fmt/format.h>

#include "ops/common/absorb_cpu.h"
#include "ops/common/gemm_tiling.h"
#include "ops/opcodes.gen.h"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::ops {
namespace {

constexpr std::array<std::string_view, 4> kInputs{"q_nope", "kv_b", "kv_b_scale", "q_out"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_q_absorb, "q_absorb"}}};
constexpr int64_t kMaxExtent = int64_t{1} << 24;  // of any spec word: products of two stay far from overflow
static_assert(block_m(int64_t{1} << 30) <= kAbsorbMaxRows && kBlockN == kAbsorbMaxColumns);

void add_regions(std::span<const TensorId> ids, const QAbsorbSpec& s, const QAbsorbPayload& p,
                 std::vector<Access>& reads, std::vector<Access>& writes) {
  const std::pair<int64_t, int64_t> m{p.row_begin, int64_t{p.row_begin} + p.row_count};
  const std::pair<int64_t, int64_t> n{p.n_begin, int64_t{p.n_begin} + p.n_count};
  const int64_t head = p.head;
  const int64_t w_row = head * (int64_t{s.nope} + s.v);
  reads.push_back({ids[kQAbsorbQNope], Box::of({m, {head, head + 1}, {0, s.nope}})});
  reads.push_back({ids[kQAbsorbKvB], Box::of({{w_row, w_row + s.nope}, n})});
  reads.push_back({ids[kQAbsorbKvBScale],
                   Box::of({{w_row / 128, (w_row + s.nope - 1) / 128 + 1}, {n.first / 128, n.first / 128 + 1}})});
  writes.push_back({ids[kQAbsorbQOut], Box::of({m, {head, head + 1}, n})});
}

class QAbsorbStage final : public Stage {
 public:
  QAbsorbStage(const LowerContext& c, const QAbsorbSpec& s, int64_t rows)
      : spec_(s), rows_(rows), block_m_(block_m(rows)), n_tiles_(ceil_div<int64_t>(s.kv_lora, kBlockN)) {
    name = c.op().name;
    opcode = kOpcode_q_absorb;
    spec = encode_spec(s);
    slots = {c.input(kQAbsorbQNope), c.input(kQAbsorbKvB), c.input(kQAbsorbKvBScale), c.input(kQAbsorbQOut)};
    num_tiles = static_cast<uint32_t>(ceil_div(rows_, block_m_) * s.heads * n_tiles_);
  }

  // Tiles run over N first, then heads, then rows.
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    const int64_t head = tile_idx / n_tiles_ % spec_.heads;
    const Range n = block_range(spec_.kv_lora, kBlockN, tile_idx % n_tiles_);
    const Range m = block_range(rows_, block_m_, tile_idx / n_tiles_ / spec_.heads);
    t.set_payload({static_cast<uint32_t>(m.begin), static_cast<uint32_t>(m.size()), static_cast<uint32_t>(head),
                   static_cast<uint32_t>(n.begin), static_cast<uint32_t>(n.size())});
    t.weight_bytes = static_cast<uint64_t>(spec_.nope * n.size());
    t.other_bytes = static_cast<uint64_t>(2 * m.size() * (spec_.nope + n.size()));
    t.flops = static_cast<uint64_t>(m.size() * n.size()) * spec_.nope;
    if (!t.wants_regions) return;
    add_regions(slots, spec_, decode_spec<QAbsorbPayload>(t.payload), t.reads, t.writes);
  }

 private:
  QAbsorbSpec spec_;
  int64_t rows_, block_m_, n_tiles_;
};

class QAbsorbFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "q_absorb"; }
  std::string_view doc() const override {
    return "multiplies each query head by the key half of kv_b (FP8 storage, BF16 math) into the first columns of "
           "q_out";
  }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override {
    static const std::array<AttrSpec, 1> kAttrs{{{"v", int64_t{0}, "value rows of each head in kv_b (required)"}}};
    return kAttrs;
  }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    const auto fail = [&](const std::string& problem) {
      return make_error(ErrorCode::kInvalidArgument, fmt::format("op '{}': {}", c.op_name, problem));
    };
    if (c.attrs.find("v") == nullptr) return fail("attribute 'v' is required");
    const int64_t v = c.attrs.get_int("v", 0);
    if (v < 0 || v > kMaxExtent) return fail(fmt::format("attribute 'v' is {}, expected 0 to {}", v, kMaxExtent));
    MEGARTP_TRY(expect_tensor(c, 0, DType::kBF16, {"*", "*", "*"}));
    const int64_t heads = MEGARTP_TRY(const_dim(c, 0, 1));
    const int64_t nope = MEGARTP_TRY(const_dim(c, 0, 2));
    if (heads > kMaxExtent || nope > kMaxExtent) return tl::unexpected(shape_error(c, 0, "dimensions up to 2^24"));
    MEGARTP_TRY(expect_tensor(c, 1, DType::kF8E4M3, {heads * (nope + v), "*"}));
    const int64_t kv_lora = MEGARTP_TRY(const_dim(c, 1, 1));
    if (kv_lora > kMaxExtent) return tl::unexpected(shape_error(c, 1, "dimensions up to 2^24"));
    MEGARTP_TRY(expect_tensor(c, 2, DType::kF32,
                              {ceil_div<int64_t>(heads * (nope + v), 128), ceil_div<int64_t>(kv_lora, 128)}));
    MEGARTP_TRY(expect_tensor(c, 3, DType::kBF16, {c.inputs[0].shape[0], heads, "*"}));
    const int64_t columns = MEGARTP_TRY(const_dim(c, 3, 2));
    if (columns < kv_lora || columns > 2 * kMaxExtent)
      return tl::unexpected(shape_error(c, 3, fmt::format("at least {} columns a head", kv_lora)));
    return InferResult{{}, {3}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const auto& q = c.input_dims(kQAbsorbQNope);
    const int64_t kv_lora = c.input_dims(kQAbsorbKvB)[1];
    const QAbsorbSpec spec{static_cast<uint32_t>(q[1]), static_cast<uint32_t>(q[2]),
                           static_cast<uint32_t>(c.op().attrs.get_int("v", 0)), static_cast<uint32_t>(kv_lora),
                           static_cast<uint32_t>(c.input_dims(kQAbsorbQOut)[2] - kv_lora)};
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::make_unique<QAbsorbStage>(c, spec, q[0]));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override { return q_absorb_reference(c); }
  void run_tile(const CpuTile& t) const override { q_absorb_run_tile(t); }

  Status check_instruction(const InstructionCheck& c) const override {
    const auto fail = [](const std::string& problem) { return make_error(ErrorCode::kParse, "q_absorb: " + problem); };
    if (c.spec.size() != sizeof(QAbsorbSpec) / 4 || abi::num_payload(c.instruction) != sizeof(QAbsorbPayload) / 4)
      return fail("wrong number of spec or payload words");
    for (const uint32_t word : c.spec)
      if (word > kMaxExtent) return fail(fmt::format("spec word {} is out of range", word));
    const auto s = decode_spec<QAbsorbSpec>(c.spec);
    const auto p = decode_spec<QAbsorbPayload>(c.instruction.payload);
    const int64_t kv_lora = s.kv_lora;
    const int64_t w_rows = int64_t{s.heads} * (int64_t{s.nope} + s.v);
    if (s.heads == 0 || s.nope == 0 || kv_lora == 0) return fail("a dimension of the spec is zero");
    if (!c.operand_is(kQAbsorbQNope, DType::kBF16, {-1, s.heads, s.nope}) ||
        !c.operand_is(kQAbsorbKvB, DType::kF8E4M3, {w_rows, kv_lora}) ||
        !c.operand_is(kQAbsorbKvBScale, DType::kF32,
                      {ceil_div<int64_t>(w_rows, 128), ceil_div<int64_t>(kv_lora, 128)}) ||
        !c.operand_is(kQAbsorbQOut, DType::kBF16, {c.operands[kQAbsorbQNope].dims[0], s.heads, kv_lora + s.rope}))
      return fail("an operand does not fit the spec " + describe_spec(c.spec));
    if (p.row_count == 0 || p.row_count > kAbsorbMaxRows ||
        int64_t{p.row_begin} + p.row_count > c.operands[kQAbsorbQNope].dims[0] || p.head >= s.heads || p.n_count == 0 ||
        p.n_count > kAbsorbMaxColumns || p.n_begin % kAbsorbMaxColumns != 0 || int64_t{p.n_begin} + p.n_count > kv_lora)
      return fail("a tile is outside its operands: " + describe_payload(0, c.instruction.payload));
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_regions(kSlotIds, decode_spec<QAbsorbSpec>(c.spec), decode_spec<QAbsorbPayload>(c.instruction.payload),
                out.reads, out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> words) const override {
    const auto p = decode_spec<QAbsorbPayload>(words);
    return fmt::format("m {}..{}, head {}, n {}..{}", p.row_begin, uint64_t{p.row_begin} + p.row_count, p.head,
                       p.n_begin, uint64_t{p.n_begin} + p.n_count);
  }
  std::string describe_spec(std::span<const uint32_t> words) const override {
    const auto s = decode_spec<QAbsorbSpec>(words);
    return fmt::format("heads={} nope={} v={} kv_lora={} rope={}", s.heads, s.nope, s.v, s.kv_lora, s.rope);
  }
};

}  // namespace

const OpFamily& q_absorb_family() {
  static const QAbsorbFamily family;
  return family;
}

}  // namespace megartp::ops
