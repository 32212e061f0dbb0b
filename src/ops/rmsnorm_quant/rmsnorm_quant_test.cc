#include <cmath>

#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/op_family.h"
#include "ops/rmsnorm_quant/rmsnorm_quant_abi.h"
#include "support/bf16_compare.h"
#include "support/instruction_fuzz.h"
#include "support/lower_op.h"
#include "support/op_harness.h"

namespace megartp::test::rmsnorm_quant_test {
namespace {

enum Output : size_t { kResidual, kY, kQ, kScale };

OpCase norm_case(int64_t m, int64_t n, bool pow2 = false, double stddev = 1.0) {
  OpCase c;
  c.kind = "add_rmsnorm_quant";
  c.attrs = {{"eps", 1e-5}, {"pow2_scale", pow2}};
  c.shapes.set("M", m);
  c.inputs = {{"x", DType::kBF16, {"M", Dim(n)}, fill_normal(1, stddev), true},
              {"residual", DType::kBF16, {"M", Dim(n)}, fill_normal(2, 2 * stddev), true},
              {"w", DType::kBF16, {Dim(n)}, fill_normal(3, 0.25, 1.0), true}};
  c.max_calc_diff_of = {{"residual", 0.0}, {"y", 1e-7}};
  return c;
}

// q and scale against the tile's own y: amax / 448 of each group, each value divided by it and rounded.
void check_quantization(const OpResult& r, bool pow2) {
  const HostBuffer& y = r.outputs[kY];
  const int64_t rows = y.dims[0];
  const int64_t cols = y.dims[1];
  const int64_t groups = r.outputs[kScale].dims[1];
  ASSERT_EQ(groups, (cols + 127) / 128);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t g = 0; g < groups; ++g) {
      float amax = 1e-4F;
      for (int64_t k = g * 128; k < std::min(cols, g * 128 + 128); ++k)
        amax = std::fmax(amax, std::fabs(to_float(y.as<bf16>()[m * cols + k])));
      const float s = r.outputs[kScale].as<float>()[m * groups + g];
      if (pow2) {
        int exponent = 0;
        EXPECT_EQ(std::frexp(s, &exponent), 0.5F) << "not a power of two";
        EXPECT_GE(s, amax / 448.0F);
        EXPECT_LT(s, amax / 448.0F * 2.0F);
      } else {
        EXPECT_EQ(s, amax / 448.0F);
      }
      for (int64_t k = g * 128; k < std::min(cols, g * 128 + 128); ++k)
        ASSERT_EQ(r.outputs[kQ].as<e4m3>()[m * cols + k].bits, to_e4m3(to_float(y.as<bf16>()[m * cols + k]) / s).bits);
    }
  }
}

void check_all(const OpCase& c, bool pow2) {
  const OpResult got = check_op(c);
  ASSERT_EQ(got.outputs.size(), 4U);
  const OpResult want = run_op_reference(c);
  EXPECT_TRUE(got.outputs[kResidual].bytes == want.outputs[kResidual].bytes);
  EXPECT_LE(max_bf16_ulps(got.outputs[kY], want.outputs[kY]), 1);
  check_quantization(got, pow2);
}

TEST(RmsnormQuant, AgreesWithTheReferenceOnEveryShape) {
  for (const int64_t m : {1, 3, 17, 33})
    for (const int64_t n : {1, 7, 128, 192, 513})
      for (const bool pow2 : {false, true}) check_all(norm_case(m, n, pow2), pow2);
}

TEST(RmsnormQuant, Glm52Width) { check_all(norm_case(2, 6144), false); }

TEST(RmsnormQuant, AgreesForTinyAndLargeValues) {
  for (const double stddev : {0.0, 1e-9, 1e10}) check_all(norm_case(3, 300, false, stddev), false);
}

// r = 1 + 3 = 4 everywhere, root 4, w = 2: y = 2, amax 2.
TEST(RmsnormQuant, ExactExample) {
  OpCase c = norm_case(2, 160);
  c.attrs = {{"eps", 1e-30}};
  c.inputs[0].fill = fill_const(1);
  c.inputs[1].fill = fill_const(3);
  c.inputs[2].fill = fill_const(2);
  const OpResult r = check_op(c);
  ASSERT_EQ(r.outputs.size(), 4U);
  for (size_t i = 0; i < r.outputs[kY].count(); ++i) {
    EXPECT_EQ(to_float(r.outputs[kResidual].as<bf16>()[i]), 4.0F);
    EXPECT_EQ(to_float(r.outputs[kY].as<bf16>()[i]), 2.0F);
    EXPECT_EQ(to_float(r.outputs[kQ].as<e4m3>()[i]), 448.0F);
  }
  for (size_t i = 0; i < r.outputs[kScale].count(); ++i) EXPECT_EQ(r.outputs[kScale].as<float>()[i], 2.0F / 448.0F);
}

// The norm must see the rounded sum: 256 + 1 is 256 in BF16, so x does not count.
TEST(RmsnormQuant, RoundsTheSumBeforeTheNorm) {
  OpCase c = norm_case(1, 128);
  c.inputs[0].fill = fill_const(1);
  c.inputs[1].fill = fill_const(256);
  OpCase without = c;
  without.inputs[0].fill = fill_const(0);
  const OpResult a = check_op(c);
  const OpResult b = check_op(without);
  for (size_t i = 0; i < a.outputs.size(); ++i) EXPECT_TRUE(a.outputs[i].bytes == b.outputs[i].bytes) << i;
}

// q, scale and residual are one result, y another: each has an event of its own.
TEST(RmsnormQuant, PublishesQuantizedAndNormApart) {
  OpGraph graph("g");
  const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 6144});
  const Tensor residual = graph.runtime_arg("res", DType::kBF16, {"M", 6144});
  const Tensor w = graph.bound_weight("w", DType::kBF16, {6144});
  const OpGraph::NormQuant out = graph.add_rmsnorm_quant(x, residual, w, {}, "A0");
  ASSERT_TRUE(graph.status());
  EXPECT_EQ(to_string(graph.tensor(out.scale.id).shape), "[M, 48]");
  ShapeEnv shapes;
  shapes.set("M", 16);
  const auto stages = lower_last_op(graph, shapes, FinalizerMode::kFused);
  ASSERT_TRUE(stages);
  ASSERT_EQ(stages->size(), 1U);
  EXPECT_EQ((*stages)[0]->num_tiles, 16U);
  TileDesc tile;
  (*stages)[0]->tile(5, tile);
  ASSERT_EQ(tile.writes.size(), 4U);
  for (const Access& a : tile.writes) {
    EXPECT_EQ(a.publication, a.tensor == out.y.id ? ops::kRmsnormQuantPublishY : ops::kRmsnormQuantPublishQ);
    EXPECT_EQ(a.box.begin[0], 5);
    EXPECT_EQ(a.box.end[0], 6);
  }
}

TEST(RmsnormQuant, RefusesBadOperandsAndEps) {
  const auto error_of = [](const Shape& res_shape, double eps) {
    OpGraph graph("g");
    const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 512});
    const Tensor residual = graph.runtime_arg("res", DType::kBF16, res_shape);
    const Tensor w = graph.bound_weight("w", DType::kBF16, {512});
    graph.add_rmsnorm_quant(x, residual, w, {{"eps", eps}}, "A0");
    return graph.status() ? std::string() : graph.status().error().to_string();
  };
  EXPECT_EQ(error_of({"M", 512}, 1e-5), "");
  const std::string message = error_of({"K", 512}, 1e-5);
  for (const char* part : {"A0", "res", "[K, 512]", "[M, 512]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(error_of({"M", 512}, -1.0).find("eps"), std::string::npos);
}

TEST(RmsnormQuant, InstructionCheckKeepsTilesInside) {
  const InstructionFuzzResult r = fuzz_check_instruction(norm_case(17, 140), FinalizerMode::kTasks, 4000, 5);
  EXPECT_GT(r.num_accepted, 400U);
  EXPECT_GT(r.num_refused, 400U);
}

}  // namespace
}  // namespace megartp::test::rmsnorm_quant_test
