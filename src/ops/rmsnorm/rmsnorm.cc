// rmsnorm: shape inference, tiles and regions, reference, CPU tile.
#include "ops/rmsnorm/rmsnorm_abi.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "ops/common/norm.h"
#include "ops/op_family.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr double kDefaultEps = 1e-5;
constexpr std::array<std::string_view, 2> kInputs{"x", "w"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_rmsnorm, "rmsnorm"}}};

void add_regions(std::span<const TensorId> ids, int64_t row, int64_t cols, std::vector<Access>& reads,
                 std::vector<Access>& writes) {
  const Box box = Box::of({{row, row + 1}, {0, cols}});
  reads.push_back({ids[kRmsnormX], box});
  reads.push_back({ids[kRmsnormW], Box::of({{0, cols}})});
  writes.push_back({ids[kRmsnormOut], box});
}

class RmsnormStage final : public Stage {
 public:
  explicit RmsnormStage(int64_t cols) : cols_(cols) {}
  void tile(uint32_t row, TileDesc& t) const override {
    t.set_payload({row});
    const auto cols = static_cast<uint64_t>(cols_);
    t.weight_bytes = cols * 2;
    t.other_bytes = cols * 4;
    t.flops = cols * 3;
    if (!t.wants_regions) return;
    add_regions(slots, row, cols_, t.reads, t.writes);
  }

 private:
  int64_t cols_;
};

class RmsnormFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "rmsnorm"; }
  std::string_view doc() const override { return "root-mean-square norm of each row of a BF16 matrix"; }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override {
    static const std::array<AttrSpec, 1> specs{{{"eps", kDefaultEps, "added to the mean square"}}};
    return specs;
  }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(expect_tensor(c, 0, DType::kBF16, {"*", "*"}));
    MEGARTP_TRY(const_dim(c, 0, 1));
    MEGARTP_TRY(expect_tensor(c, 1, DType::kBF16, {c.inputs[0].shape[1]}));
    const double eps = c.attrs.get_double("eps", kDefaultEps);
    if (!std::isfinite(eps) || static_cast<float>(eps) <= 0.0F)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("op '{}': attribute eps is {}, expected a positive number", c.op_name, eps));
    return InferResult{{{"", DType::kBF16, c.inputs[0].shape}}, {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const int64_t cols = c.input_dims(0)[1];
    auto stage = std::make_unique<RmsnormStage>(cols);
    stage->name = c.op().name;
    stage->opcode = kOpcode_rmsnorm;
    stage->spec = encode_spec(
        RmsnormSpec{static_cast<uint32_t>(cols), static_cast<float>(c.op().attrs.get_double("eps", kDefaultEps))});
    stage->slots = {c.input(0), c.input(1), c.output(0)};
    stage->num_tiles = static_cast<uint32_t>(c.input_dims(0)[0]);
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::move(stage));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override {
    const auto* x = c.inputs[0].as<bf16>();
    const auto* w = c.inputs[1].as<bf16>();
    auto* out = c.outputs[0].as<bf16>();
    const int64_t cols = c.inputs[0].dims[1];
    const double eps = c.op.attrs.get_double("eps", kDefaultEps);
    for (int64_t m = 0; m < c.inputs[0].dims[0]; ++m) {
      double squares = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const double v = to_float(x[m * cols + k]);
        squares += v * v;
      }
      const double root = std::sqrt(squares / static_cast<double>(cols) + eps);
      for (int64_t k = 0; k < cols; ++k)
        out[m * cols + k] =
            to_bf16(static_cast<double>(to_float(x[m * cols + k])) / root * static_cast<double>(to_float(w[k])));
    }
    return {};
  }

  void run_tile(const CpuTile& t) const override {
    const auto spec = decode_spec<RmsnormSpec>(t.spec);
    const size_t offset = size_t{t.payload[0]} * spec.cols;
    rmsnorm_row(t.operand<const bf16>(kRmsnormX) + offset, t.operand<const bf16>(kRmsnormW), spec.cols, spec.eps,
                t.operand<bf16>(kRmsnormOut) + offset);
  }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(RmsnormSpec) / 4 || abi::num_payload(c.instruction) != 1)
      return make_error(ErrorCode::kParse, "rmsnorm: wrong number of spec or payload words");
    const int64_t cols = decode_spec<RmsnormSpec>(c.spec).cols;
    if (!c.operand_is(kRmsnormW, DType::kBF16, {cols}))
      return make_error(ErrorCode::kParse, fmt::format("rmsnorm: the weight is not BF16 [{}]", cols));
    const int64_t row = c.instruction.payload[0];
    for (const uint32_t slot : {kRmsnormX, kRmsnormOut})
      if (!c.operand_is(slot, DType::kBF16, {-1, cols}) || row >= c.operands[slot].dims[0])
        return make_error(ErrorCode::kParse, fmt::format("rmsnorm: row {} does not fit operand {}", row, slot));
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_regions(kSlotIds, c.instruction.payload[0], decode_spec<RmsnormSpec>(c.spec).cols, out.reads, out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> p) const override {
    return p.empty() ? "?" : fmt::format("row {}", p[0]);
  }
  std::string describe_spec(std::span<const uint32_t> s) const override {
    const auto spec = decode_spec<RmsnormSpec>(s);
    return fmt::format("N={} eps={:g}", spec.cols, spec.eps);
  }
};

}  // namespace

const OpFamily& rmsnorm_family() {
  static const RmsnormFamily family;
  return family;
}

}  // namespace megartp::ops
