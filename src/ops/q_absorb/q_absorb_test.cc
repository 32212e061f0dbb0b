#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ops/common/absorb_cpu.h"
#include "ops/mega_op.h"
#include "support/lower_op.h"
#include "support/op_harness.h"

namespace megartp::test::q_absorb_test {
namespace {

struct Sizes {
  int64_t m, heads, nope, v, kv_lora, rope;
};

OpCase q_absorb_case(const Sizes& s) {
  const int64_t w_rows = s.heads * (s.nope + s.v);
  OpCase c;
  c.kind = "q_absorb";
  c.attrs = {{"v", s.v}};
  c.shapes.set("M", s.m);
  c.inputs = {{"q_nope", DType::kBF16, {"M", Dim(s.heads), Dim(s.nope)}, fill_normal(1), true},
              {"kv_b", DType::kF8E4M3, {Dim(w_rows), Dim(s.kv_lora)}, fill_normal(2, 60.0), true},
              {"kv_b_scale",
               DType::kF32,
               {Dim((w_rows + 127) / 128), Dim((s.kv_lora + 127) / 128)},
               fill_uniform(3, 1e-4, 3e-4),
               true},
              {"q_out", DType::kBF16, {"M", Dim(s.heads), Dim(s.kv_lora + s.rope)}, fill_normal(4), false, true}};
  return c;
}

TEST(QAbsorb, AgreesWithTheReferenceOnEveryShape) {
  const Sizes sizes[] = {
      {1, 1, 1, 0, 1, 0},          // tiny
      {3, 2, 7, 5, 40, 8},         // one ragged N tile, nothing a multiple of anything
      {16, 4, 192, 256, 256, 64},  // GLM-5.2's heads
      {5, 3, 192, 128, 300, 64},   // scale rows change inside heads, ragged last N tile
      {33, 2, 128, 128, 128, 64},  // DeepSeek's heads; a full and a ragged M tile
      {65, 1, 130, 3, 129, 2},     // three chunks of d, 64-row tiles
  };
  for (const Sizes& s : sizes) {
    SCOPED_TRACE(testing::Message() << "m " << s.m << ", heads " << s.heads << ", kv_lora " << s.kv_lora);
    check_op(q_absorb_case(s));
  }
}

TEST(QAbsorb, CutsGlm52Into256Tiles) {
  OpGraph graph("g");
  const Tensor q = graph.runtime_arg("q", DType::kBF16, {"M", 64, 192});
  const Tensor w = graph.bound_weight("w", DType::kF8E4M3, {28672, 512});
  const Tensor scale = graph.bound_weight("s", DType::kF32, {224, 4});
  const Tensor out = graph.state("out", DType::kBF16, {"M", 64, 576});
  graph.q_absorb(q, {w, scale}, out, {{"v", int64_t{256}}}, "D2");
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  ShapeEnv shapes;
  shapes.set("M", 16);
  const auto stages = lower_last_op(graph, shapes, FinalizerMode::kFused);
  ASSERT_TRUE(stages);
  ASSERT_EQ(stages->size(), 1U);
  EXPECT_EQ((*stages)[0]->num_tiles, 256U);
}

TEST(QAbsorb, ShapeErrorsNameTensorAndShapes) {
  const auto error_of = [](const Shape& w_shape, const Shape& out_shape, Attrs attrs) {
    OpGraph graph("g");
    const Tensor q = graph.runtime_arg("q", DType::kBF16, {"M", 4, 192});
    const Tensor w = graph.bound_weight("w", DType::kF8E4M3, w_shape);
    const Tensor scale = graph.bound_weight("s", DType::kF32, {14, 4});
    const Tensor out = graph.state("out", DType::kBF16, out_shape);
    graph.q_absorb(q, {w, scale}, out, std::move(attrs), "D2");
    return graph.status() ? std::string() : graph.status().error().to_string();
  };
  const Attrs v256 = {{"v", int64_t{256}}};
  EXPECT_EQ(error_of({1792, 512}, {"M", 4, 576}, v256), "");
  EXPECT_THAT(error_of({1792, 512}, {"M", 4, 576}, {}), testing::HasSubstr("'v' is required"));
  EXPECT_THAT(error_of({1791, 512}, {"M", 4, 576}, v256),
              testing::HasSubstr("'w' has shape [1791, 512], expected [1792, *]"));
  EXPECT_THAT(error_of({1792, 512}, {"M", 4, 511}, v256), testing::HasSubstr("'out' has shape [M, 4, 511]"));
  EXPECT_THAT(error_of({1792, 512}, {"M", 5, 576}, v256), testing::HasSubstr("'out' has shape [M, 5, 576]"));
  EXPECT_THAT(error_of({1792, 512}, {"M", 4, 576}, {{"v", int64_t{-1}}}), testing::HasSubstr("'v' is -1"));
}

TEST(QAbsorb, CheckInstructionRefusesWhatWouldLeaveTheOperands) {
  const OpFamily& family = *find_op_family("q_absorb");
  const std::vector<int64_t> q{16, 4, 192}, w{1792, 512}, scale{14, 4}, out{16, 4, 576};
  const std::vector<uint32_t> good_spec{4, 192, 256, 512, 64};
  const std::vector<uint32_t> good_payload{0, 16, 3, 384, 128};
  const auto accepts = [&](const std::vector<uint32_t>& spec, const std::vector<uint32_t>& payload) {
    std::vector<OperandType> operands(abi::kOperandSlots);
    operands[0] = {true, DType::kBF16, q};
    operands[1] = {true, DType::kF8E4M3, w};
    operands[2] = {true, DType::kF32, scale};
    operands[3] = {true, DType::kBF16, out};
    abi::Instruction instruction{};
    instruction.opcode = family.opcodes()[0].opcode;
    instruction.counts = abi::make_counts(0, 0, static_cast<uint32_t>(payload.size()));
    std::copy(payload.begin(), payload.end(), instruction.payload);
    return family.check_instruction({instruction, spec, operands}).has_value();
  };
  EXPECT_TRUE(accepts(good_spec, good_payload));
  EXPECT_FALSE(accepts({4, 192, 256, 512}, good_payload));
  EXPECT_FALSE(accepts(good_spec, {0, 16, 3, 384}));
  for (size_t word = 0; word < good_spec.size(); ++word) {
    for (const uint32_t bad : {0U, good_spec[word] + 1, 0x80000000U, 0xffffffffU}) {
      auto spec = good_spec;
      spec[word] = bad;
      EXPECT_FALSE(accepts(spec, good_payload)) << "spec word " << word << " = " << bad;
    }
  }
  const std::vector<std::vector<uint32_t>> bad_payloads{
      {1, 16, 3, 384, 128}, {0xffffffffU, 1, 3, 384, 128}, {0, 0, 3, 384, 128},  {0, 65, 3, 384, 128},
      {0, 16, 4, 384, 128}, {0, 16, 3, 385, 127},          {0, 16, 3, 512, 128}, {0, 16, 3, 384, 129},
      {0, 16, 3, 384, 0},   {0, 16, 3, 0xffffff80U, 128},
  };
  for (const auto& payload : bad_payloads) EXPECT_FALSE(accepts(good_spec, payload)) << payload[0] << ' ' << payload[3];
}

TEST(QAbsorb, MegaOpTakesWhatTheOrdinaryKernelTakes) {
  const MegaOpInfo& op = *find_mega_op(find_op_family("q_absorb")->opcodes()[0].opcode);
  const std::vector<int64_t> kv_b{1792, 512};
  std::vector<OperandType> operands(abi::kOperandSlots);
  operands[1] = {true, DType::kF8E4M3, kv_b};
  const abi::Instruction instruction{};
  const auto accepts = [&](const std::vector<uint32_t>& spec) {
    return op.check({instruction, spec, operands}).has_value();
  };
  EXPECT_TRUE(accepts({4, 192, 256, 512, 64}));
  EXPECT_TRUE(accepts({1, 4, 3, 16, 0}));
  EXPECT_FALSE(accepts({4, 196, 256, 512, 64}));  // steps
  EXPECT_FALSE(accepts({4, 190, 256, 512, 64}));
  EXPECT_FALSE(accepts({4, 192, 256, 520, 64}));
  EXPECT_FALSE(accepts({4, 192, 256, 512, 4}));

  const std::vector<uint32_t> spec{4, 192, 256, 512, 64};
  EXPECT_EQ(op.num_pages({instruction, spec, operands}), 4U);
  const std::vector<MegaOpMap> maps = op.maps(spec, operands);
  ASSERT_EQ(maps.size(), 1U);
  EXPECT_EQ(maps[0].slot, 1U);
  EXPECT_EQ(maps[0].spec.dims[0], 512U);
  EXPECT_EQ(maps[0].spec.dims[1], 1792U);
  EXPECT_EQ(maps[0].spec.strides[0], 512U);
  EXPECT_EQ(maps[0].spec.box[0] * maps[0].spec.box[1], 8192U);
}

TEST(QAbsorb, EveryBuildOfTheKernelGivesTheSameBits) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, 1);
  const int64_t m = 13, nope = 150, columns = 77;
  std::vector<bf16> q(static_cast<size_t>(m * nope));
  std::vector<e4m3> w(static_cast<size_t>(nope * columns));
  for (bf16& x : q) x = to_bf16(normal(rng));
  for (e4m3& x : w) x = e4m3{static_cast<uint8_t>(rng())};  // subnormal, negative zero, NaN: all codes
  const std::vector<float> scale{3.1e-4F, 1.7e-5F};
  std::vector<std::vector<bf16>> results;
  for (const ops::AbsorbTileFn tile : ops::absorb_tile_variants()) {
    std::vector<bf16> out(static_cast<size_t>(m * columns));
    alignas(64) static std::byte scratch[ops::kAbsorbScratchBytes];
    ops::AbsorbArgs a;
    a.q = q.data();
    a.ldq = nope;
    a.w = w.data();
    a.ldw = columns;
    a.w_scale = scale.data();
    a.ld_w_scale = 1;
    a.w_row = 100;
    a.m_count = m;
    a.n_count = columns;
    a.d_count = nope;
    a.out = out.data();
    a.ld_out = columns;
    tile(a, scratch);
    results.push_back(out);
  }
  // The definition, one value at a time.
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t n = 0; n < columns; ++n) {
      float sum = 0;
      for (int64_t d = 0; d < nope; ++d) {
        const float weight =
            round_bf16(to_float(w[static_cast<size_t>(d * columns + n)]) * scale[static_cast<size_t>((100 + d) / 128)]);
        sum += to_float(q[static_cast<size_t>(i * nope + d)]) * weight;
      }
      for (const auto& out : results)
        EXPECT_EQ(out[static_cast<size_t>(i * columns + n)].bits, to_bf16(sum).bits) << "row " << i << ", column " << n;
    }
  }
}

}  // namespace
}  // namespace megartp::test::q_absorb_test
