// add_rmsnorm_quant: shape inference, tiles and regions, reference, CPU tile.
#include "ops/rmsnorm_quant/rmsnorm_quant_abi.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/math.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/norm.h"
#include "ops/common/quant.h"
#include "ops/op_family.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr double kDefaultEps = 1e-5;
// A tile has two rows of BF16 in its scratch.
constexpr int64_t kMaxColumns = kCpuScratchBytes / (2 * sizeof(bf16));
constexpr std::array<std::string_view, 3> kInputs{"x", "residual", "w"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_add_rmsnorm_quant, "add_rmsnorm_quant"}}};

// On a GPU, which has many more workers than rows, a row is norm'd by so many tiles at most: reading it again is cheap,
// and what comes behind the norm takes most of the time.
constexpr int64_t kMaxParts = 8;
int64_t num_parts(int64_t num_sms, int64_t rows, int64_t cols) {
  const int64_t wish = gpu_workers(num_sms) / std::max<int64_t>(1, rows);
  return std::clamp<int64_t>(wish, 1, std::min(kMaxParts, ceil_div(cols, kQuantGroup)));
}

RmsnormQuantPayload decode_payload(const uint32_t* p) { return {p[0], p[1], p[2]}; }

void add_regions(std::span<const TensorId> ids, const RmsnormQuantPayload& p, int64_t cols, std::vector<Access>& reads,
                 std::vector<Access>& writes) {
  const std::pair<int64_t, int64_t> rows{p.row, int64_t{p.row} + 1};
  const int64_t end = int64_t{p.col_begin} + p.col_count;
  const Box row = Box::of({rows, {0, cols}});
  const Box box = Box::of({rows, {p.col_begin, end}});
  reads.push_back({ids[kRmsnormQuantX], row});
  reads.push_back({ids[kRmsnormQuantResidualIn], row});
  reads.push_back({ids[kRmsnormQuantW], Box::of({{0, cols}})});
  writes.push_back({ids[kRmsnormQuantQ], box, kRmsnormQuantPublishQ});
  writes.push_back({ids[kRmsnormQuantScale], Box::of({rows, {p.col_begin / kQuantGroup, ceil_div(end, kQuantGroup)}}),
                    kRmsnormQuantPublishQ});
  writes.push_back({ids[kRmsnormQuantResidual], box, kRmsnormQuantPublishQ});
  writes.push_back({ids[kRmsnormQuantY], box, kRmsnormQuantPublishY});
}

class RmsnormQuantStage final : public Stage {
 public:
  // Rows innermost: who needs some columns needs them of many rows.
  RmsnormQuantStage(int64_t rows, int64_t cols, int64_t parts)
      : rows_(rows), cols_(cols), part_cols_(ceil_div(ceil_div(cols, kQuantGroup), parts) * kQuantGroup) {
    num_tiles = static_cast<uint32_t>(rows * ceil_div(cols, part_cols_));
  }
  void tile(uint32_t tile_idx, TileDesc& t) const override {
    const auto rows = static_cast<uint32_t>(rows_);
    const Range part = block_range(cols_, part_cols_, tile_idx / rows);
    t.set_payload({tile_idx % rows, static_cast<uint32_t>(part.begin), static_cast<uint32_t>(part.size())});
    const auto cols = static_cast<uint64_t>(cols_);
    const auto written = static_cast<uint64_t>(part.size());
    t.weight_bytes = cols * 2;
    t.other_bytes = cols * 4 + written * 5 + static_cast<uint64_t>(ceil_div(part.size(), kQuantGroup)) * 4;
    t.flops = cols * 2 + written * 4;
    if (!t.wants_regions) return;
    add_regions(slots, decode_payload(t.payload.data()), cols_, t.reads, t.writes);
  }

 private:
  int64_t rows_, cols_, part_cols_;
};

class RmsnormQuantFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "add_rmsnorm_quant"; }
  std::string_view doc() const override { return "adds the residual, normalises each row, and quantises it to FP8"; }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override {
    static const std::array<AttrSpec, 2> specs{{{"eps", kDefaultEps, "added to the mean square"},
                                                {"pow2_scale", false, "rounds FP8 scales up to powers of two"}}};
    return specs;
  }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(expect_tensor(c, 0, DType::kBF16, {"*", "*"}));
    const int64_t cols = MEGARTP_TRY(const_dim(c, 0, 1));
    if (cols > kMaxColumns)
      return make_error(
          ErrorCode::kOutOfResources,
          fmt::format("op '{}': a row of {} values does not fit the scratch of {}", c.op_name, cols, kMaxColumns));
    const Shape& shape = c.inputs[0].shape;
    MEGARTP_TRY(expect_tensor(c, 1, DType::kBF16, shape));
    MEGARTP_TRY(expect_tensor(c, 2, DType::kBF16, {cols}));
    const double eps = c.attrs.get_double("eps", kDefaultEps);
    if (!std::isfinite(eps) || static_cast<float>(eps) <= 0.0F)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("op '{}': attribute eps is {}, expected a positive number", c.op_name, eps));
    return InferResult{{{"residual", DType::kBF16, shape},
                        {"y", DType::kBF16, shape},
                        {"q", DType::kF8E4M3, shape},
                        {"scale", DType::kF32, {shape[0], ceil_div(cols, kQuantGroup)}}},
                       {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const int64_t rows = c.input_dims(0)[0];
    const int64_t cols = c.input_dims(0)[1];
    const Attrs& attrs = c.op().attrs;
    auto stage =
        std::make_unique<RmsnormQuantStage>(rows, cols, c.any_shape() ? 1 : num_parts(c.num_sms(), rows, cols));
    stage->name = c.op().name;
    stage->opcode = kOpcode_add_rmsnorm_quant;
    stage->spec = encode_spec(RmsnormQuantSpec{static_cast<uint32_t>(cols),
                                               static_cast<float>(attrs.get_double("eps", kDefaultEps)),
                                               attrs.get_bool("pow2_scale", false) ? 1U : 0U});
    stage->slots = {c.input(0), c.input(1), c.input(2), c.output(0), c.output(1), c.output(2), c.output(3)};
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::move(stage));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override {
    const int64_t cols = c.inputs[0].dims[1];
    const double eps = c.op.attrs.get_double("eps", kDefaultEps);
    const bool pow2 = c.op.attrs.get_bool("pow2_scale", false);
    for (int64_t m = 0; m < c.inputs[0].dims[0]; ++m) reference_row(c, m, cols, eps, pow2);
    return {};
  }

  void run_tile(const CpuTile& t) const override {
    const auto spec = decode_spec<RmsnormQuantSpec>(t.spec);
    const RmsnormQuantPayload p = decode_payload(t.payload);
    const int64_t cols = spec.cols;
    const int64_t end = int64_t{p.col_begin} + p.col_count;
    const size_t offset = size_t{p.row} * spec.cols;
    const bf16* x = t.operand<const bf16>(kRmsnormQuantX) + offset;
    const bf16* residual_in = t.operand<const bf16>(kRmsnormQuantResidualIn) + offset;
    // Others may be writing the rest of the row.
    bf16* residual = reinterpret_cast<bf16*>(t.scratch.data());
    bf16* y = residual + cols;
    e4m3* q = t.operand<e4m3>(kRmsnormQuantQ) + offset;
    float* scale =
        t.operand<float>(kRmsnormQuantScale) + size_t{p.row} * ceil_div(size_t{spec.cols}, size_t{kQuantGroup});
    for (int64_t k = 0; k < cols; ++k) residual[k] = to_bf16(to_float(x[k]) + to_float(residual_in[k]));
    rmsnorm_row(residual, t.operand<const bf16>(kRmsnormQuantW), cols, spec.eps, y);
    std::copy(residual + p.col_begin, residual + end, t.operand<bf16>(kRmsnormQuantResidual) + offset + p.col_begin);
    std::copy(y + p.col_begin, y + end, t.operand<bf16>(kRmsnormQuantY) + offset + p.col_begin);
    for (int64_t begin = p.col_begin; begin < end; begin += kQuantGroup) {
      const int64_t count = std::min(kQuantGroup, end - begin);
      std::array<float, kQuantGroup> group;
      for (int64_t k = 0; k < count; ++k) group[static_cast<size_t>(k)] = to_float(y[begin + k]);
      scale[begin / kQuantGroup] = quantize_group(group.data(), count, spec.pow2_scale != 0, q + begin);
    }
  }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(RmsnormQuantSpec) / 4 || abi::num_payload(c.instruction) != kRmsnormQuantPayloadWords)
      return make_error(ErrorCode::kParse, "add_rmsnorm_quant: wrong number of spec or payload words");
    const auto spec = decode_spec<RmsnormQuantSpec>(c.spec);
    const int64_t cols = spec.cols;
    const RmsnormQuantPayload p = decode_payload(c.instruction.payload);
    const int64_t row = p.row;
    const int64_t end = int64_t{p.col_begin} + p.col_count;
    if (cols > kMaxColumns) return make_error(ErrorCode::kParse, fmt::format("add_rmsnorm_quant: {} columns", cols));
    if (p.col_count == 0 || p.col_begin % kQuantGroup != 0 || end > cols || (end % kQuantGroup != 0 && end != cols))
      return make_error(ErrorCode::kParse, fmt::format("add_rmsnorm_quant: columns {}+{} of {} are not whole groups",
                                                       p.col_begin, p.col_count, cols));
    if (spec.pow2_scale > 1) return make_error(ErrorCode::kParse, "add_rmsnorm_quant: pow2_scale is neither 0 nor 1");
    if (!c.operand_is(kRmsnormQuantW, DType::kBF16, {cols}))
      return make_error(ErrorCode::kParse, fmt::format("add_rmsnorm_quant: the weight is not BF16 [{}]", cols));
    for (uint32_t slot = kRmsnormQuantX; slot <= kRmsnormQuantScale; ++slot) {
      if (slot == kRmsnormQuantW) continue;
      const DType dtype = slot == kRmsnormQuantQ       ? DType::kF8E4M3
                          : slot == kRmsnormQuantScale ? DType::kF32
                                                       : DType::kBF16;
      const int64_t width = slot == kRmsnormQuantScale ? ceil_div(cols, kQuantGroup) : cols;
      if (!c.operand_is(slot, dtype, {-1, width}) || row >= c.operands[slot].dims[0])
        return make_error(ErrorCode::kParse,
                          fmt::format("add_rmsnorm_quant: row {} does not fit operand {}", row, slot));
    }
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_regions(kSlotIds, decode_payload(c.instruction.payload), decode_spec<RmsnormQuantSpec>(c.spec).cols, out.reads,
                out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> p) const override {
    return p.size() < kRmsnormQuantPayloadWords ? "?" : fmt::format("row {}, columns {}..{}", p[0], p[1], p[1] + p[2]);
  }
  std::string describe_spec(std::span<const uint32_t> s) const override {
    const auto spec = decode_spec<RmsnormQuantSpec>(s);
    return fmt::format("N={} eps={:g}{}", spec.cols, spec.eps, spec.pow2_scale != 0 ? " pow2-scale" : "");
  }

 private:
  // Statistics in double; the roundings that the outputs define (residual and y to BF16, scale to fp32, q to FP8) stay.
  static void reference_row(const ReferenceContext& c, int64_t m, int64_t cols, double eps, bool pow2) {
    const bf16* x = c.inputs[0].as<bf16>() + m * cols;
    const bf16* residual_in = c.inputs[1].as<bf16>() + m * cols;
    const bf16* w = c.inputs[2].as<bf16>();
    bf16* residual = c.outputs[0].as<bf16>() + m * cols;
    bf16* y = c.outputs[1].as<bf16>() + m * cols;
    e4m3* q = c.outputs[2].as<e4m3>() + m * cols;
    float* scale = c.outputs[3].as<float>() + m * c.outputs[3].dims[1];
    double squares = 0;
    for (int64_t k = 0; k < cols; ++k) {
      residual[k] = to_bf16(static_cast<double>(to_float(x[k])) + static_cast<double>(to_float(residual_in[k])));
      const double r = to_float(residual[k]);
      squares += r * r;
    }
    const double root = std::sqrt(squares / static_cast<double>(cols) + eps);
    for (int64_t k = 0; k < cols; ++k)
      y[k] = to_bf16(static_cast<double>(to_float(residual[k])) / root * static_cast<double>(to_float(w[k])));
    for (int64_t g = 0; g < c.outputs[3].dims[1]; ++g) {
      const int64_t end = std::min(cols, (g + 1) * 128);
      double amax = 1e-4;
      for (int64_t k = g * 128; k < end; ++k) amax = std::max(amax, std::fabs(static_cast<double>(to_float(y[k]))));
      double s = static_cast<double>(static_cast<float>(amax / 448.0));
      if (pow2) {
        int exponent = 0;
        const double fraction = std::frexp(s, &exponent);  // s = fraction * 2^exponent, fraction in [0.5, 1)
        s = std::ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
      }
      scale[g] = static_cast<float>(s);
      for (int64_t k = g * 128; k < end; ++k)
        q[k] = to_e4m3(static_cast<float>(static_cast<double>(to_float(y[k])) / s));
    }
  }
};

}  // namespace

const OpFamily& rmsnorm_quant_family() {
  static const RmsnormQuantFamily family;
  return family;
}

}  // namespace megartp::ops
