// head_gate: shape inference, tiles and regions, reference, CPU tile.
#include "ops/head_gate/head_gate_abi.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "ops/common/gemm_cpu.h"
#include "ops/common/gemm_tiling.h"
#include "ops/op_family.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<std::string_view, 2> kInputs{"y", "w"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_head_gate, "head_gate"}}};
constexpr int64_t kMaxBlockM = 64;

HeadGatePayload decode_payload(const uint32_t* p) { return {p[0], p[1], p[2], p[3]}; }

void add_regions(std::span<const TensorId> ids, int64_t hidden, int64_t heads, const HeadGatePayload& p,
                 std::vector<Access>& reads, std::vector<Access>& writes) {
  const Range k = block_range(hidden, kBlockK, p.slice);
  const std::pair<int64_t, int64_t> m{p.m_begin, int64_t{p.m_begin} + p.m_count};
  reads.push_back({ids[kHeadGateY], Box::of({m, {k.begin, k.end}})});
  reads.push_back({ids[kHeadGateW], Box::of({{0, heads}, {k.begin, k.end}})});
  writes.push_back({ids[kHeadGatePartials], Box::of({{p.slice, int64_t{p.slice} + 1}, m, {0, heads}})});
}

class HeadGateStage final : public Stage {
 public:
  HeadGateStage(int64_t rows, int64_t hidden, int64_t heads) : rows_(rows), hidden_(hidden), heads_(heads) {
    num_tiles = static_cast<uint32_t>(ceil_div(rows, block_m(rows)) * ceil_div(hidden, kBlockK));
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    // K slices of one M tile are neighbours.
    const int64_t slices = ceil_div(hidden_, kBlockK);
    const int64_t slice = tile_idx % slices;
    const Range m = block_range(rows_, block_m(rows_), tile_idx / slices);
    const Range k = block_range(hidden_, kBlockK, slice);
    t.set_payload({static_cast<uint32_t>(m.begin), static_cast<uint32_t>(m.size()), static_cast<uint32_t>(slice),
                   static_cast<uint32_t>(rows_)});
    t.weight_bytes = static_cast<uint64_t>(heads_ * k.size() * 2);
    t.other_bytes = static_cast<uint64_t>(m.size() * (k.size() * 2 + heads_ * 4));
    t.flops = static_cast<uint64_t>(m.size() * heads_ * k.size());
    if (!t.wants_regions) return;
    add_regions(slots, hidden_, heads_, decode_payload(t.payload.data()), t.reads, t.writes);
  }

 private:
  int64_t rows_, hidden_, heads_;
};

class HeadGateFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "head_gate"; }
  std::string_view doc() const override {
    return "gate logits of the indexer heads, as one fp32 partial per 128 hidden columns";
  }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override { return {}; }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(expect_tensor(c, 0, DType::kBF16, {"*", "*"}));
    const int64_t hidden = MEGARTP_TRY(const_dim(c, 0, 1));
    MEGARTP_TRY(expect_tensor(c, 1, DType::kBF16, {"*", hidden}));
    const int64_t heads = MEGARTP_TRY(const_dim(c, 1, 0));
    OutputSpec partials{"partials", DType::kF32, {ceil_div(hidden, kBlockK), c.inputs[0].shape[0], heads}, true};
    return InferResult{{std::move(partials)}, {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const int64_t rows = c.input_dims(0)[0];
    const int64_t hidden = c.input_dims(0)[1];
    const int64_t heads = c.input_dims(1)[0];
    auto stage = std::make_unique<HeadGateStage>(rows, hidden, heads);
    stage->name = c.op().name;
    stage->opcode = kOpcode_head_gate;
    stage->spec = encode_spec(HeadGateSpec{static_cast<uint32_t>(hidden), static_cast<uint32_t>(heads)});
    stage->slots = {c.input(0), c.input(1), c.output(0)};
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::move(stage));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override {
    const auto* y = c.inputs[0].as<bf16>();
    const auto* w = c.inputs[1].as<bf16>();
    auto* partials = c.outputs[0].as<float>();
    const int64_t rows = c.inputs[0].dims[0];
    const int64_t hidden = c.inputs[0].dims[1];
    const int64_t heads = c.inputs[1].dims[0];
    for (int64_t slice = 0; slice * 128 < hidden; ++slice) {
      for (int64_t m = 0; m < rows; ++m) {
        for (int64_t h = 0; h < heads; ++h) {
          double sum = 0;
          for (int64_t k = slice * 128; k < std::min(hidden, slice * 128 + 128); ++k)
            sum += static_cast<double>(to_float(y[m * hidden + k])) * static_cast<double>(to_float(w[h * hidden + k]));
          partials[(slice * rows + m) * heads + h] = static_cast<float>(sum);
        }
      }
    }
    return {};
  }

  void run_tile(const CpuTile& t) const override {
    const auto spec = decode_spec<HeadGateSpec>(t.spec);
    const HeadGatePayload p = decode_payload(t.payload);
    const Range k = block_range(spec.hidden, kBlockK, p.slice);
    Bf16GemmArgs args;
    args.a = t.operand<const bf16>(kHeadGateY) + int64_t{p.m_begin} * spec.hidden + k.begin;
    args.lda = spec.hidden;
    args.ldw = spec.hidden;
    args.m_count = p.m_count;
    args.k_count = k.size();
    args.ld_out = spec.heads;
    const bf16* w = t.operand<const bf16>(kHeadGateW) + k.begin;
    float* out = t.operand<float>(kHeadGatePartials) + (int64_t{p.slice} * p.rows + p.m_begin) * spec.heads;
    for (int64_t head = 0; head < spec.heads; head += kBlockN) {
      args.w = w + head * spec.hidden;
      args.n_count = std::min<int64_t>(kBlockN, spec.heads - head);
      args.out = out + head;
      bf16_gemm_tile(args, t.scratch);
    }
  }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(HeadGateSpec) / 4 || abi::num_payload(c.instruction) != kHeadGatePayloadWords)
      return make_error(ErrorCode::kParse, "head_gate: wrong number of spec or payload words");
    const auto spec = decode_spec<HeadGateSpec>(c.spec);
    const HeadGatePayload p = decode_payload(c.instruction.payload);
    const int64_t slices = ceil_div<int64_t>(spec.hidden, kBlockK);
    if (!c.operand_is(kHeadGateY, DType::kBF16, {p.rows, spec.hidden}) ||
        !c.operand_is(kHeadGateW, DType::kBF16, {spec.heads, spec.hidden}) ||
        !c.operand_is(kHeadGatePartials, DType::kF32, {slices, p.rows, spec.heads}))
      return make_error(ErrorCode::kParse, fmt::format("head_gate: operands do not fit hidden={} heads={} rows={}",
                                                       spec.hidden, spec.heads, p.rows));
    if (p.m_count == 0 || p.m_count > kMaxBlockM || int64_t{p.m_begin} + p.m_count > p.rows || p.slice >= slices)
      return make_error(ErrorCode::kParse, fmt::format("head_gate: tile {} does not fit [{}, {}, {}]",
                                                       describe_payload(c.instruction.opcode, c.instruction.payload),
                                                       slices, p.rows, spec.heads));
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    const auto spec = decode_spec<HeadGateSpec>(c.spec);
    add_regions(kSlotIds, spec.hidden, spec.heads, decode_payload(c.instruction.payload), out.reads, out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> words) const override {
    if (words.size() < kHeadGatePayloadWords) return "?";
    const HeadGatePayload p = decode_payload(words.data());
    return fmt::format("m {}..{}, k-slice {}", p.m_begin, uint64_t{p.m_begin} + p.m_count, p.slice);
  }
  std::string describe_spec(std::span<const uint32_t> s) const override {
    const auto spec = decode_spec<HeadGateSpec>(s);
    return fmt::format("hidden={} heads={}", spec.hidden, spec.heads);
  }
};

}  // namespace

const OpFamily& head_gate_family() {
  static const HeadGateFamily family;
  return family;
}

}  // namespace megartp::ops
