// main_q: shape inference, tiles and regions, instruction check, descriptions.
#include "ops/main_q/main_q.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/math.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/quant.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<std::string_view, 6> kInputs{"x", "x_scale", "q_b_proj", "q_b_proj_scale", "positions", "cos_sin"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_main_q, "main_q"}}};

const std::array<AttrSpec, 4>& attr_table() {
  static const std::array<AttrSpec, 4> table{
      {{"heads", int64_t{0}, "number of heads (required)"},
       {"nope", int64_t{0}, "columns of a head without rotation, even (required)"},
       {"rope", int64_t{0}, "rotated columns of a head, even (required)"},
       {"kv_lora", int64_t{0}, "columns of q_out before the rotated ones (required)"}}};
  return table;
}
// Bound of every attribute; keeps products far from overflow.
constexpr int64_t kMaxAttr = int64_t{1} << 20;

// Adds the boxes of columns [lo, hi) of every head that the tile's columns [n.begin, n.end) touch, at column `at` of
// `tensor` [M, heads, *]. Consecutive heads whose part is complete share one box, so at most three boxes result.
void add_head_boxes(TensorId tensor, uint8_t publication, Range m, Range n, int64_t head_cols, Range part, int64_t at,
                    std::vector<Access>& writes) {
  const int64_t first = n.begin / head_cols;
  const int64_t last = (n.end - 1) / head_cols;
  const auto columns = [&](int64_t head) {
    return Range{std::max(n.begin - head * head_cols, part.begin), std::min(n.end - head * head_cols, part.end)};
  };
  const auto is_whole = [&](const Range& r) { return r.begin == part.begin && r.end == part.end; };
  for (int64_t head = first; head <= last;) {
    const Range c = columns(head);
    int64_t next = head + 1;
    if (is_whole(c))
      while (next <= last && is_whole(columns(next))) ++next;
    if (c.size() > 0) {
      const int64_t offset = at - part.begin;
      writes.push_back(
          {tensor, Box::of({{m.begin, m.end}, {head, next}, {c.begin + offset, c.end + offset}}), publication});
    }
    head = next;
  }
}

void add_regions(std::span<const TensorId> ids, const MainQSpec& s, const MainQPayload& p, std::vector<Access>& reads,
                 std::vector<Access>& writes) {
  const Range m{p.m_begin, int64_t{p.m_begin} + p.m_count};
  const Range n{p.n_begin, int64_t{p.n_begin} + p.n_count};
  const int64_t head_cols = int64_t{s.nope} + s.rope;
  reads.push_back({ids[kMainQX], Box::of({{m.begin, m.end}, {0, s.k}})});
  reads.push_back({ids[kMainQXScale], Box::of({{m.begin, m.end}, {0, ceil_div<int64_t>(s.k, kBlockK)}})});
  reads.push_back({ids[kMainQPositions], Box::of({{m.begin, m.end}})});
  add_head_boxes(ids[kMainQNope], 0, m, n, head_cols, {0, s.nope}, 0, writes);
  add_head_boxes(ids[kMainQOut], 1, m, n, head_cols, {s.nope, head_cols}, s.kv_lora, writes);
}

MainQPayload decode_payload(const uint32_t* p) { return {p[0], p[1], p[2], p[3]}; }

class MainQStage final : public Stage {
 public:
  MainQStage(const MainQSpec& s, int64_t m, int64_t block_n, std::vector<TensorId> ids)
      : s_(s), m_(m), block_n_(block_n) {
    opcode = kOpcode_main_q;
    spec = encode_spec(s);
    slots = std::move(ids);
    num_n_tiles_ = static_cast<uint32_t>(ceil_div(n_total(), block_n_));
    num_tiles = static_cast<uint32_t>(ceil_div(m, block_m(m))) * num_n_tiles_;
  }
  void tile(uint32_t tile_idx, TileDesc& out) const override {
    const Range m = block_range(m_, block_m(m_), tile_idx / num_n_tiles_);
    const Range n = block_range(n_total(), block_n_, tile_idx % num_n_tiles_);
    const int64_t k_blocks = ceil_div<int64_t>(s_.k, kBlockK);
    const auto word = [](int64_t v) { return static_cast<uint32_t>(v); };
    out.set_payload({word(m.begin), word(m.size()), word(n.begin), word(n.size())});
    out.weight_bytes = static_cast<uint64_t>(n.size() * s_.k + 4 * k_blocks);
    out.other_bytes = static_cast<uint64_t>(m.size() * (s_.k + 4 * k_blocks + 2 * n.size()));
    out.flops = static_cast<uint64_t>(m.size() * n.size() * s_.k);
    if (!out.wants_regions) return;
    add_regions(slots, s_, decode_payload(out.payload.data()), out.reads, out.writes);
  }

 private:
  int64_t n_total() const { return s_.heads * (int64_t{s_.nope} + s_.rope); }

  MainQSpec s_;
  int64_t m_;
  int64_t block_n_;
  uint32_t num_n_tiles_ = 0;
};

class MainQFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "main_q"; }
  std::string_view doc() const override { return "FP8 projection to the query heads, RoPE of their last columns"; }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override { return attr_table(); }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    std::array<int64_t, 4> attr{};
    for (size_t i = 0; i < attr.size(); ++i) {
      const std::string_view name = attr_table()[i].name;
      attr[i] = c.attrs.get_int(name, 0);
      const bool must_be_even = name == "nope" || name == "rope";
      if (attr[i] < 1 || attr[i] > kMaxAttr || (must_be_even && attr[i] % 2 != 0))
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("op '{}': attribute '{}' is {}, expected {} number from 1 to {}", c.op_name, name,
                                      attr[i], must_be_even ? "an even" : "a", kMaxAttr));
    }
    const auto [heads, nope, rope, kv_lora] = attr;
    MEGARTP_TRY(expect_tensor(c, kMainQX, DType::kF8E4M3, {"*", "*"}));
    const Dim m = c.inputs[kMainQX].shape[0];
    const int64_t k = MEGARTP_TRY(const_dim(c, kMainQX, 1));
    const int64_t n = heads * (nope + rope);
    const int64_t k_blocks = ceil_div(k, kQuantGroup);
    MEGARTP_TRY(expect_tensor(c, kMainQXScale, DType::kF32, {m, k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kMainQWeight, DType::kF8E4M3, {n, k}));
    MEGARTP_TRY(expect_tensor(c, kMainQWeightScale, DType::kF32, {ceil_div(n, kBlockN), k_blocks}));
    MEGARTP_TRY(expect_tensor(c, kMainQPositions, DType::kI32, {m}));
    MEGARTP_TRY(expect_tensor(c, kMainQCosSin, DType::kF32, {"*", rope}));
    return InferResult{
        {{"q_nope", DType::kBF16, {m, heads, nope}}, {"q_out", DType::kBF16, {m, heads, kv_lora + rope}}}, {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const auto& attrs = c.op().attrs;
    const auto attr = [&](std::string_view name) { return static_cast<uint32_t>(attrs.get_int(name, 0)); };
    const MainQSpec spec{static_cast<uint32_t>(c.input_dims(kMainQX)[1]), attr("heads"), attr("nope"), attr("rope"),
                         attr("kv_lora")};
    std::vector<TensorId> ids = c.op().inputs;
    ids.insert(ids.end(), c.op().outputs.begin(), c.op().outputs.end());
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(
        std::make_unique<MainQStage>(spec, c.input_dims(kMainQX)[0], block_n(c.num_sms()), std::move(ids)));
    stages.back()->name = c.op().name;
    return stages;
  }

  Status reference(const ReferenceContext& c) const override { return main_q_reference(c); }
  void run_tile(const CpuTile& t) const override { run_main_q_tile(t); }
  Status check_instruction(const InstructionCheck& c) const override { return check_main_q(c); }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_regions(kSlotIds, decode_spec<MainQSpec>(c.spec), decode_payload(c.instruction.payload), out.reads, out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> p) const override {
    if (p.size() < kMainQPayloadWords) return "?";
    return fmt::format("m {}..{}, n {}..{}", p[0], p[0] + p[1], p[2], p[2] + p[3]);
  }
  std::string describe_spec(std::span<const uint32_t> words) const override {
    const auto s = decode_spec<MainQSpec>(words);
    return fmt::format("K={} heads={} nope={} rope={} kv_lora={}", s.k, s.heads, s.nope, s.rope, s.kv_lora);
  }
};

}  // namespace

Status check_main_q(const InstructionCheck& c) {
  const auto refuse = [](std::string_view what) {
    return make_error(ErrorCode::kParse, fmt::format("main_q: {}", what));
  };
  if (c.spec.size() != sizeof(MainQSpec) / 4 || abi::num_payload(c.instruction) != kMainQPayloadWords)
    return refuse("wrong number of spec or payload words");
  const auto s = decode_spec<MainQSpec>(c.spec);
  for (const uint32_t v : {s.heads, s.nope, s.rope, s.kv_lora})
    if (v == 0 || v > kMaxAttr) return refuse("the spec makes no sense");
  if (s.k == 0 || s.k > INT32_MAX || s.nope % 2 != 0 || s.rope % 2 != 0) return refuse("the spec makes no sense");
  const MainQPayload p = decode_payload(c.instruction.payload);
  const int64_t n = int64_t{s.heads} * (int64_t{s.nope} + s.rope);
  if (p.n_count == 0 || p.n_count > kBlockN || p.n_begin % 2 != 0 || p.n_count % 2 != 0 ||
      int64_t{p.n_begin} + p.n_count > n)
    return refuse(fmt::format("columns {}+{} of {}", p.n_begin, p.n_count, n));
  const int64_t m = c.operands[kMainQX].present && !c.operands[kMainQX].dims.empty() ? c.operands[kMainQX].dims[0] : 0;
  if (p.m_count == 0 || int64_t{p.m_begin} + p.m_count > m || p.m_count > block_m(m))
    return refuse(fmt::format("rows {}+{} of {}", p.m_begin, p.m_count, m));
  const int64_t k_blocks = ceil_div<int64_t>(s.k, kBlockK);
  const auto fits = [&](MainQSlot slot, DType dtype, std::initializer_list<int64_t> dims) -> Status {
    if (c.operand_is(slot, dtype, dims)) return {};
    return refuse(fmt::format("operand {} does not fit the spec", uint32_t{slot}));
  };
  MEGARTP_TRY(fits(kMainQX, DType::kF8E4M3, {m, s.k}));
  MEGARTP_TRY(fits(kMainQXScale, DType::kF32, {m, k_blocks}));
  MEGARTP_TRY(fits(kMainQWeight, DType::kF8E4M3, {n, s.k}));
  MEGARTP_TRY(fits(kMainQWeightScale, DType::kF32, {ceil_div(n, kBlockN), k_blocks}));
  MEGARTP_TRY(fits(kMainQPositions, DType::kI32, {m}));
  MEGARTP_TRY(fits(kMainQCosSin, DType::kF32, {-1, s.rope}));
  MEGARTP_TRY(fits(kMainQNope, DType::kBF16, {m, s.heads, s.nope}));
  MEGARTP_TRY(fits(kMainQOut, DType::kBF16, {m, s.heads, int64_t{s.kv_lora} + s.rope}));
  return {};
}

const OpFamily& main_q_family() {
  static const MainQFamily family;
  return family;
}

}  // namespace megartp::ops
