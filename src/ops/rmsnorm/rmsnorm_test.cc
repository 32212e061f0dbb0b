#include <cmath>

#include <gtest/gtest.h>

#include "support/bf16_compare.h"
#include "support/instruction_fuzz.h"
#include "support/op_harness.h"

namespace megartp::test::rmsnorm_test {
namespace {

OpCase rmsnorm_case(int64_t m, int64_t n, double stddev = 1.0) {
  OpCase c;
  c.kind = "rmsnorm";
  c.shapes.set("M", m);
  c.inputs = {{"x", DType::kBF16, {"M", Dim(n)}, fill_normal(1, stddev), true},
              {"w", DType::kBF16, {Dim(n)}, fill_normal(2, 0.25, 1.0), true}};
  c.max_calc_diff = 1e-7;
  return c;
}

void check_within_one_ulp(const OpCase& c) {
  const OpResult got = check_op(c);
  ASSERT_EQ(got.outputs.size(), 1U);
  EXPECT_LE(max_bf16_ulps(got.outputs[0], run_op_reference(c).outputs[0]), 1);
}

TEST(Rmsnorm, AgreesWithTheReferenceOnEveryShape) {
  for (const int64_t m : {1, 3, 17, 33})
    for (const int64_t n : {1, 7, 128, 513}) check_within_one_ulp(rmsnorm_case(m, n));
  check_within_one_ulp(rmsnorm_case(2, 6144));
}

TEST(Rmsnorm, AgreesForLargeAndTinyValues) {
  for (const double stddev : {1e-12, 1e-3, 1e4, 1e15}) check_within_one_ulp(rmsnorm_case(3, 300, stddev));
}

TEST(Rmsnorm, RowOfZerosStaysZero) {
  OpCase c = rmsnorm_case(2, 130);
  c.inputs[0].fill = fill_const(0);
  const OpResult got = check_op(c);
  ASSERT_EQ(got.outputs.size(), 1U);
  for (size_t i = 0; i < got.outputs[0].count(); ++i) EXPECT_EQ(to_float(got.outputs[0].as<bf16>()[i]), 0.0F);
}

// Mean square 4, so that every factor is a power of two: 2 * (1 / 2) * 3.
TEST(Rmsnorm, ExactExample) {
  OpCase c = rmsnorm_case(1, 96);
  c.attrs = {{"eps", 1e-30}};
  c.inputs[0].fill = fill_const(2);
  c.inputs[1].fill = fill_const(3);
  const OpResult got = check_op(c);
  ASSERT_EQ(got.outputs.size(), 1U);
  for (size_t i = 0; i < 96; ++i) EXPECT_EQ(to_float(got.outputs[0].as<bf16>()[i]), 3.0F);
}

TEST(Rmsnorm, EpsCounts) {
  OpCase c = rmsnorm_case(3, 128, 1e-3);
  const OpResult small = run_op_tiles(c, FinalizerMode::kTasks, 1);
  c.attrs = {{"eps", 1.0}};
  const OpResult large = check_op(c);
  EXPECT_FALSE(small.outputs[0].bytes == large.outputs[0].bytes);
}

TEST(Rmsnorm, RefusesBadOperandsAndEps) {
  const auto error_of = [](const Shape& w_shape, DType w_dtype, double eps) {
    OpGraph graph("g");
    const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 512});
    const Tensor w = graph.bound_weight("gain", w_dtype, w_shape);
    graph.rmsnorm(x, w, eps, "norm");
    return graph.status() ? std::string() : graph.status().error().to_string();
  };
  EXPECT_EQ(error_of({512}, DType::kBF16, 1e-5), "");
  const std::string shape = error_of({511}, DType::kBF16, 1e-5);
  for (const char* part : {"norm", "gain", "[511]", "[512]"}) EXPECT_NE(shape.find(part), std::string::npos) << shape;
  EXPECT_NE(error_of({512}, DType::kF32, 1e-5).find("BF16"), std::string::npos);
  for (const double eps : {0.0, -1e-5, 1e-60, static_cast<double>(NAN), static_cast<double>(INFINITY)})
    EXPECT_NE(error_of({512}, DType::kBF16, eps).find("eps"), std::string::npos) << eps;
}

TEST(Rmsnorm, InstructionCheckKeepsTilesInside) {
  const InstructionFuzzResult r = fuzz_check_instruction(rmsnorm_case(17, 70), FinalizerMode::kTasks, 4000, 5);
  EXPECT_GT(r.num_accepted, 400U);
  EXPECT_GT(r.num_refused, 400U);
}

}  // namespace
}  // namespace megartp::test::rmsnorm_test
