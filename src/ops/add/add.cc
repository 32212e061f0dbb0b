// add: shape inference, tiles and regions, reference, CPU tile.
#include "ops/add/add_abi.h"

#include <array>

#include "base/bfloat16.h"
#include "ops/op_family.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<std::string_view, 2> kInputs{"a", "b"};
constexpr std::array<OpcodeInfo, 1> kOpcodes{{{kOpcode_add, "add"}}};

void add_regions(std::span<const TensorId> ids, int64_t row, int64_t cols, std::vector<Access>& reads,
                 std::vector<Access>& writes) {
  const Box box = Box::of({{row, row + 1}, {0, cols}});
  reads.push_back({ids[kAddA], box});
  reads.push_back({ids[kAddB], box});
  writes.push_back({ids[kAddOut], box});
}

class AddStage final : public Stage {
 public:
  explicit AddStage(int64_t cols) : cols_(cols) {}
  void tile(uint32_t row, TileDesc& t) const override {
    t.set_payload({row});
    t.other_bytes = static_cast<uint64_t>(cols_) * 6;
    t.flops = static_cast<uint64_t>(cols_);
    if (!t.wants_regions) return;
    add_regions(slots, row, cols_, t.reads, t.writes);
  }

 private:
  int64_t cols_;
};

class AddFamily final : public OpFamily {
 public:
  std::string_view kind() const override { return "add"; }
  std::string_view doc() const override { return "elementwise sum of two BF16 matrices"; }
  std::span<const std::string_view> input_names() const override { return kInputs; }
  std::span<const AttrSpec> attr_specs() const override { return {}; }
  std::span<const OpcodeInfo> opcodes() const override { return kOpcodes; }

  Result<InferResult> infer(const InferContext& c) const override {
    MEGARTP_TRY(expect_tensor(c, 0, DType::kBF16, {"*", "*"}));
    MEGARTP_TRY(const_dim(c, 0, 1));
    MEGARTP_TRY(expect_tensor(c, 1, DType::kBF16, c.inputs[0].shape));
    return InferResult{{{"", DType::kBF16, c.inputs[0].shape}}, {}};
  }

  Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& c) const override {
    const int64_t rows = c.input_dims(0)[0];
    const int64_t cols = c.input_dims(0)[1];
    auto stage = std::make_unique<AddStage>(cols);
    stage->name = c.op().name;
    stage->opcode = kOpcode_add;
    stage->spec = encode_spec(AddSpec{static_cast<uint32_t>(cols)});
    stage->slots = {c.input(0), c.input(1), c.output(0)};
    stage->num_tiles = static_cast<uint32_t>(rows);
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::move(stage));
    return stages;
  }

  Status reference(const ReferenceContext& c) const override {
    const auto* a = c.inputs[0].as<bf16>();
    const auto* b = c.inputs[1].as<bf16>();
    auto* out = c.outputs[0].as<bf16>();
    const int64_t n = c.inputs[0].dims[0] * c.inputs[0].dims[1];
    for (int64_t i = 0; i < n; ++i)
      out[i] = to_bf16(static_cast<double>(to_float(a[i])) + static_cast<double>(to_float(b[i])));
    return {};
  }

  void run_tile(const CpuTile& t) const override {
    const auto spec = decode_spec<AddSpec>(t.spec);
    const size_t offset = size_t{t.payload[0]} * spec.cols;
    const bf16* a = t.operand<const bf16>(kAddA) + offset;
    const bf16* b = t.operand<const bf16>(kAddB) + offset;
    bf16* out = t.operand<bf16>(kAddOut) + offset;
    for (uint32_t i = 0; i < spec.cols; ++i) out[i] = to_bf16(to_float(a[i]) + to_float(b[i]));
  }

  Status check_instruction(const InstructionCheck& c) const override {
    if (c.spec.size() != sizeof(AddSpec) / 4 || abi::num_payload(c.instruction) != 1)
      return make_error(ErrorCode::kParse, "add: wrong number of spec or payload words");
    const int64_t cols = decode_spec<AddSpec>(c.spec).cols;
    for (const uint32_t slot : {kAddA, kAddB, kAddOut})
      if (!c.operand_is(slot, DType::kBF16, {-1, cols}) || c.instruction.payload[0] >= c.operands[slot].dims[0])
        return make_error(ErrorCode::kParse, "add: row " + std::to_string(c.instruction.payload[0]) +
                                                 " does not fit operand " + std::to_string(slot));
    return {};
  }

  void regions(const InstructionCheck& c, InstructionRegions& out) const override {
    add_regions(kSlotIds, c.instruction.payload[0], decode_spec<AddSpec>(c.spec).cols, out.reads, out.writes);
  }

  std::string describe_payload(uint32_t, std::span<const uint32_t> p) const override {
    return "row " + std::to_string(p[0]);
  }
  std::string describe_spec(std::span<const uint32_t> s) const override {
    return "N=" + std::to_string(decode_spec<AddSpec>(s).cols);
  }
};

}  // namespace

const OpFamily& add_family() {
  static const AddFamily family;
  return family;
}

}  // namespace megartp::ops
