// gemm: shape inference, tiles and regions, reference, CPU tile.
#include "ops/gemm/gemm_abi.h"

#include <array>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "ops/common/gemm_cpu.h"
#include "ops/common/gemm_tiling.h"
#include "ops/op_family.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<std::string_view, 2> kInputs{"x", "w"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_gemm, "gemm"}}};
constexpr int64_t kMaxBlockM = 64;
// The tile's fp32 sums stand at the front of the scratch memory; the rest is the kernel's.
constexpr size_t kSumsBytes = sizeof(float) * kMaxBlockM * kBlockN;

GemmPayload decode_payload(const uint32_t* p) { return {p[0], p[1], p[2], p[3]}; }

void add_regions(std::span<const TensorId> ids, int64_t k, const GemmPayload& p, std::vector<Access>& reads,
                 std::vector<Access>& writes) {
  const std::pair<int64_t, int64_t> m{p.m_begin, int64_t{p.m_begin} + p.m_count};
  const std::pair<int64_t, int64_t> n{p.n_begin, int64_t{p.n_begin} + p.n_count};
  reads.push_back({ids[kGemmX], Box::of({m, {0, k}})});
  reads.push_back({ids[kGemmW], Box::of({n, {0, k}})});
  writes.push_back({ids[kGemmOut], Box::of({m, n})});
}

class GemmStage final : public Stage {
 public:
  GemmStage(int64_t m, int64_t n, int64_t k) : m_(m), n_(n), k_(k) {
    num_tiles = static_cast<uint32_t>(ceil_div(m, block_m(m)) * ceil_div(n, kBlockN));
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    // N tiles of one M tile are neighbours.
    const int64_t n_tiles = ceil_div(n_, kBlockN);
    const Range m = block_range(m_, block_m(m_), tile_idx / n_tiles);
    const Range n = block_range(n_, kBlockN, tile_idx % n_tiles);
    t.set_payload({static_cast<uint32_t>(m.begin), static_cast<uint32_t>(m.size()), static_cast<uint32_t>(n.begin),
                   static_cast<uint32_t>(n.size())});
    t.weight_bytes = static_cast<uint64_t>(n.size() * k_ * 2);
    t.other_bytes = static_cast<uint64_t>(m.size() * (k_ + n.size()) * 2);
    t.flops = static_cast<uint64_t>(m.size() * n.size() * k_);
    if (!t.wants_regions) return;
    add_regions(slots, k_, decode_payload(t.payload.data()), t.reads, t.writes);
  }

 private:
  int64_t m_, n_, k_;
};

class GemmFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "gemm"; }
  std::string_view doc() const override { return "product of a BF16 matrix and a transposed BF16 weight"; }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override { return {}; }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(expect_tensor(c, 0, DType::kBF16, {"*", "*"}));
    MEGARTP_TRY(const_dim(c, 0, 1));
    MEGARTP_TRY(expect_tensor(c, 1, DType::kBF16, {"*", c.inputs[0].shape[1]}));
    const int64_t n = MEGARTP_TRY(const_dim(c, 1, 0));
    return InferResult{{{"", DType::kBF16, {c.inputs[0].shape[0], n}}}, {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const int64_t m = c.input_dims(0)[0];
    const int64_t k = c.input_dims(0)[1];
    const int64_t n = c.input_dims(1)[0];
    auto stage = std::make_unique<GemmStage>(m, n, k);
    stage->name = c.op().name;
    stage->opcode = kOpcode_gemm;
    stage->spec = encode_spec(GemmSpec{static_cast<uint32_t>(n), static_cast<uint32_t>(k)});
    stage->slots = {c.input(0), c.input(1), c.output(0)};
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::move(stage));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override {
    const auto* x = c.inputs[0].as<bf16>();
    const auto* w = c.inputs[1].as<bf16>();
    auto* out = c.outputs[0].as<bf16>();
    const int64_t rows = c.inputs[0].dims[0];
    const int64_t depth = c.inputs[0].dims[1];
    const int64_t cols = c.inputs[1].dims[0];
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < cols; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k)
          sum += static_cast<double>(to_float(x[m * depth + k])) * static_cast<double>(to_float(w[n * depth + k]));
        out[m * cols + n] = to_bf16(sum);
      }
    }
    return {};
  }

  void run_tile(const CpuTile& t) const override {
    const auto spec = decode_spec<GemmSpec>(t.spec);
    const GemmPayload p = decode_payload(t.payload);
    auto* sums = reinterpret_cast<float*>(t.scratch.data());
    Bf16GemmArgs args;
    args.a = t.operand<const bf16>(kGemmX) + size_t{p.m_begin} * spec.k;
    args.lda = spec.k;
    args.w = t.operand<const bf16>(kGemmW) + size_t{p.n_begin} * spec.k;
    args.ldw = spec.k;
    args.m_count = p.m_count;
    args.n_count = p.n_count;
    args.k_count = spec.k;
    args.out = sums;
    args.ld_out = p.n_count;
    bf16_gemm_tile(args, t.scratch.subspan(kSumsBytes));
    bf16* out = t.operand<bf16>(kGemmOut) + size_t{p.m_begin} * spec.n + p.n_begin;
    for (size_t m = 0; m < p.m_count; ++m)
      for (size_t n = 0; n < p.n_count; ++n) out[m * spec.n + n] = to_bf16(sums[m * p.n_count + n]);
  }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(GemmSpec) / 4 || abi::num_payload(c.instruction) != kGemmPayloadWords)
      return make_error(ErrorCode::kParse, "gemm: wrong number of spec or payload words");
    const auto spec = decode_spec<GemmSpec>(c.spec);
    const GemmPayload p = decode_payload(c.instruction.payload);
    if (!c.operand_is(kGemmX, DType::kBF16, {-1, spec.k}) || !c.operand_is(kGemmW, DType::kBF16, {spec.n, spec.k}) ||
        !c.operand_is(kGemmOut, DType::kBF16, {c.operands[kGemmX].dims[0], spec.n}))
      return make_error(ErrorCode::kParse, fmt::format("gemm: operands do not fit N={} K={}", spec.n, spec.k));
    const int64_t rows = c.operands[kGemmX].dims[0];
    if (p.m_count == 0 || p.m_count > kMaxBlockM || int64_t{p.m_begin} + p.m_count > rows || p.n_count == 0 ||
        p.n_count > kBlockN || int64_t{p.n_begin} + p.n_count > spec.n)
      return make_error(ErrorCode::kParse,
                        fmt::format("gemm: tile {} does not fit [{}, {}]",
                                    describe_payload(c.instruction.opcode, c.instruction.payload), rows, spec.n));
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_regions(kSlotIds, decode_spec<GemmSpec>(c.spec).k, decode_payload(c.instruction.payload), out.reads,
                out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> words) const override {
    if (words.size() < kGemmPayloadWords) return "?";
    const GemmPayload p = decode_payload(words.data());
    return fmt::format("m {}..{}, n {}..{}", p.m_begin, uint64_t{p.m_begin} + p.m_count, p.n_begin,
                       uint64_t{p.n_begin} + p.n_count);
  }
  std::string describe_spec(std::span<const uint32_t> s) const override {
    const auto spec = decode_spec<GemmSpec>(s);
    return fmt::format("N={} K={}", spec.n, spec.k);
  }
};

}  // namespace

const OpFamily& gemm_family() {
  static const GemmFamily family;
  return family;
}

}  // namespace megartp::ops
