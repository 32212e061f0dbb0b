// main_q: against its reference, exact write boxes for heads that do not match tiles, the same bits for every cut.
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/math.h"
#include "ops/main_q/main_q_abi.h"
#include "support/op_harness.h"
#include "support/test_lower_context.h"

namespace megartp::test::main_q_test {
namespace {

struct Dims {
  int64_t m = 16, k = 256, heads = 2, nope = 192, rope = 64, kv_lora = 32;
};
constexpr int64_t kPositions = 40;

Attrs attrs_of(const Dims& d) {
  return {{"heads", d.heads}, {"nope", d.nope}, {"rope", d.rope}, {"kv_lora", d.kv_lora}};
}

void fill_cos_sin(HostBuffer& b) {
  const int64_t rope = b.dims[1];
  for (int64_t p = 0; p < b.dims[0]; ++p)
    for (int64_t i = 0; i < rope / 2; ++i) {
      const double phi =
          static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rope));
      b.as<float>()[p * rope + i] = static_cast<float>(std::cos(phi));
      b.as<float>()[p * rope + rope / 2 + i] = static_cast<float>(std::sin(phi));
    }
}

OpCase make_case(const Dims& d) {
  const int64_t n = d.heads * (d.nope + d.rope);
  const int64_t kb = ceil_div<int64_t>(d.k, 128);
  OpCase c;
  c.kind = "main_q";
  c.attrs = attrs_of(d);
  c.shapes.set("M", d.m);
  c.inputs = {{"x", DType::kF8E4M3, {"M", d.k}, fill_normal(1, 100), true},
              {"x_scale", DType::kF32, {"M", kb}, fill_uniform(2, 0.003, 0.01), true},
              {"q_b", DType::kF8E4M3, {n, d.k}, fill_normal(3, 100)},
              {"q_b_scale", DType::kF32, {ceil_div<int64_t>(n, 128), kb}, fill_uniform(4, 1e-4, 4e-4)},
              {"positions", DType::kI32, {"M"}, fill_int(5, 0, kPositions), true},
              {"cos_sin", DType::kF32, {kPositions, d.rope}, fill_cos_sin}};
  c.partial_outputs = {"q_out"};
  // README: differences from the reference are single bf16 steps (at most 2^-8 of a value, which moves calc_diff by
  // 2^-17 / n) where the fp32 and the double sum round apart; allow one per 1,000 values and one more.
  const auto limit = [](int64_t count) {
    return 0x1p-17 * (static_cast<double>(count) / 1000 + 1) / static_cast<double>(count);
  };
  c.max_calc_diff_of["q_nope"] = limit(d.m * d.heads * d.nope);
  c.max_calc_diff_of["q_out"] = limit(d.m * d.heads * d.rope);
  return c;
}

TEST(MainQ, AgreesWithTheReference) {
  for (const Dims& d : std::vector<Dims>{{16, 256, 2, 192, 64, 512},  // GLM's heads: two tiles each
                                         {3, 384, 4, 128, 64, 32},    // DeepSeek's heads: one and a half tiles
                                         {1, 128, 1, 2, 2, 1},
                                         {5, 100, 7, 10, 6, 3},        // several heads a tile, ragged K and N
                                         {33, 200, 3, 36, 94, 8},      // edges inside rotated parts
                                         {70, 64, 5, 300, 20, 16}}) {  // heads longer than two tiles
    SCOPED_TRACE("m=" + std::to_string(d.m) + " k=" + std::to_string(d.k) + " nope=" + std::to_string(d.nope));
    check_op(make_case(d));
  }
}

TEST(MainQ, SameBitsForEveryBlockM) {
  Dims d{70, 200, 3, 36, 94, 8};
  const OpResult all = run_op_tiles(make_case(d), FinalizerMode::kFused, 1);
  for (const int64_t m : {16, 32, 1}) {
    d.m = m;
    const OpResult part = run_op_tiles(make_case(d), FinalizerMode::kTasks, 2);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(std::memcmp(part.outputs[i].bytes.data(), all.outputs[i].bytes.data(), part.outputs[i].bytes.size()), 0)
          << m;
  }
}

struct Lowered {
  OpGraph graph{"test"};
  ShapeEnv shapes;
  explicit Lowered(const OpCase& c) : shapes(c.shapes) {
    std::vector<Tensor> inputs;
    for (const OpInput& in : c.inputs) inputs.push_back(graph.runtime_arg(in.name, in.dtype, in.shape));
    graph.op(c.kind, "D0", inputs, c.attrs);
  }
};

std::set<uint32_t> writers_of(const Stage& stage, TensorId tensor, const Box& box) {
  std::set<uint32_t> writers;
  for (uint32_t i = 0; i < stage.num_tiles; ++i) {
    TileDesc t;
    stage.tile(i, t);
    for (const Access& w : t.writes)
      if (w.tensor == tensor && w.box.overlaps(box)) writers.insert(i);
  }
  return writers;
}

TEST(MainQ, EachGlmHeadComesFromItsTwoTiles) {
  const Lowered l(make_case({16, 2048, 64, 192, 64, 512}));
  ASSERT_TRUE(l.graph.status());
  TestLowerContext context(l.graph, l.shapes, FinalizerMode::kFused);
  const auto stages = find_op_family("main_q")->lower(context).value();
  ASSERT_EQ(stages.size(), 1U);
  const Stage& s = *stages[0];
  EXPECT_EQ(s.name, "D0");
  EXPECT_EQ(s.num_tiles, 128U);
  for (uint32_t h = 0; h < 64; ++h)
    EXPECT_THAT(writers_of(s, s.slots[ops::kMainQNope], Box::of({{0, 16}, {h, h + 1}, {0, 192}})),
                testing::ElementsAre(2 * h, 2 * h + 1));
}

TEST(MainQ, TilesShareDeepSeekHeads) {
  const Lowered l(make_case({16, 1536, 128, 128, 64, 512}));
  TestLowerContext context(l.graph, l.shapes, FinalizerMode::kFused);
  const auto stages = find_op_family("main_q")->lower(context).value();
  const Stage& s = *stages[0];
  EXPECT_EQ(s.num_tiles, 192U);
  for (uint32_t h = 0; h < 128; h += 2) {
    const uint32_t first = h / 2 * 3;
    EXPECT_THAT(writers_of(s, s.slots[ops::kMainQNope], Box::of({{0, 16}, {h, h + 1}, {0, 128}})),
                testing::ElementsAre(first));
    EXPECT_THAT(writers_of(s, s.slots[ops::kMainQNope], Box::of({{0, 16}, {h + 1, h + 2}, {0, 128}})),
                testing::ElementsAre(first + 1, first + 2));
  }
}

TEST(MainQ, WholeHeadsShareOneBox) {
  const Lowered l(make_case({16, 128, 100, 8, 2, 4}));  // heads of 10: a tile has a part, 11 or 12 whole heads, a part
  TestLowerContext context(l.graph, l.shapes, FinalizerMode::kFused);
  const auto stages = find_op_family("main_q")->lower(context).value();
  TileDesc t;
  stages[0]->tile(1, t);  // columns 128..256: head 12 from its rotated pair on, heads 13..24, head 25 up to column 6
  ASSERT_EQ(t.writes.size(), 3U);
  EXPECT_EQ(t.writes[0].box, Box::of({{0, 16}, {13, 25}, {0, 8}}));
  EXPECT_EQ(t.writes[1].box, Box::of({{0, 16}, {25, 26}, {0, 6}}));
  EXPECT_EQ(t.writes[2].box, Box::of({{0, 16}, {12, 25}, {4, 6}}));
}

TEST(MainQ, RefusesInstructionsThatLeaveTheirOperands) {
  const Lowered l(make_case({5, 100, 7, 10, 6, 3}));
  const OpFamily& family = *find_op_family("main_q");
  TestLowerContext context(l.graph, l.shapes, FinalizerMode::kFused);
  const auto stages = family.lower(context).value();
  const Stage& stage = *stages[0];
  std::vector<OperandType> operands;
  const abi::Instruction good = context.instruction(stage, 0, operands);
  const auto accepts = [&](const abi::Instruction& i, const std::vector<uint32_t>& spec) {
    return family.check_instruction(InstructionCheck{i, spec, operands}).has_value();
  };
  ASSERT_TRUE(accepts(good, stage.spec));
  for (uint32_t w = 0; w < 4; ++w) {
    for (const uint32_t value : {0xffffffffU, 0x10000U, 0x7ffffffeU}) {
      abi::Instruction bad = good;
      bad.payload[w] = value;
      EXPECT_FALSE(accepts(bad, stage.spec)) << "payload word " << w;
    }
  }
  for (const uint32_t w : {2U, 3U}) {  // a pair would be torn
    abi::Instruction bad = good;
    bad.payload[w] += w == 2 ? 1 : 0xffffffffU;
    EXPECT_FALSE(accepts(bad, stage.spec));
  }
  for (size_t w = 0; w < stage.spec.size(); ++w) {
    for (const uint32_t value : {0U, 0xffffffffU, stage.spec[w] + 2}) {
      std::vector<uint32_t> spec = stage.spec;
      spec[w] = value;
      EXPECT_FALSE(accepts(good, spec)) << "spec word " << w << " = " << value;
    }
  }
  for (size_t slot = 0; slot < ops::kMainQNumSlots; ++slot) {
    const OperandType saved = operands[slot];
    operands[slot].present = false;
    EXPECT_FALSE(accepts(good, stage.spec)) << slot;
    operands[slot] = saved;
  }
}

TEST(MainQ, InferenceNamesWhatIsWrong) {
  const auto error_of = [](const OpCase& c) {
    const Lowered l(c);
    return l.graph.status() ? std::string("no error") : l.graph.status().error().to_string();
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(error_of(make_case({16, 256, 2, 191, 65, 32})), AllOf(HasSubstr("'nope' is 191"), HasSubstr("even")));
  OpCase c = make_case({});
  c.attrs.set("heads", int64_t{0});
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("'D0'"), HasSubstr("'heads' is 0")));
  c = make_case({});
  c.attrs = Attrs{{"heads", int64_t{2}}, {"nope", int64_t{192}}, {"rope", int64_t{64}}};
  EXPECT_THAT(error_of(c), HasSubstr("'kv_lora' is 0"));
  c = make_case({});
  c.attrs.set("heads", int64_t{3});
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("q_b"), HasSubstr("[768, 256]")));
  c = make_case({});
  c.inputs[ops::kMainQCosSin].shape = {kPositions, 32};
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("cos_sin"), HasSubstr("64")));
}

}  // namespace
}  // namespace megartp::test::main_q_test
