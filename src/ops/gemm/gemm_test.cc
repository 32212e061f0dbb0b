#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/rng.h"
#include "support/instruction_fuzz.h"
#include "support/op_harness.h"

namespace megartp::test::gemm_test {
namespace {

OpCase gemm_case(int64_t m, int64_t n, int64_t k) {
  OpCase c;
  c.kind = "gemm";
  c.shapes.set("M", m);
  c.inputs = {{"x", DType::kBF16, {"M", Dim(k)}, fill_normal(1), true},
              {"w", DType::kBF16, {Dim(n), Dim(k)}, fill_normal(2), true}};
  c.max_calc_diff = 1e-7;
  return c;
}

// Whole numbers of at most 4: every sum is exact in fp32, so the result must be that of the reference to the bit.
std::function<void(HostBuffer&)> fill_whole(uint64_t stream) {
  return [stream](HostBuffer& b) {
    const Rng rng(9, stream);
    for (size_t i = 0; i < b.count(); ++i)
      b.as<bf16>()[i] = to_bf16(static_cast<float>(static_cast<int64_t>(rng.below(i, 9)) - 4));
  };
}

TEST(Gemm, AgreesWithTheReferenceOnEveryShape) {
  for (const int64_t m : {1, 3, 17, 33})
    for (const auto& [n, k] : {std::pair{1, 1}, {7, 40}, {128, 128}, {130, 129}, {200, 333}})
      check_op(gemm_case(m, n, k));
}

TEST(Gemm, IsExactWhereFp32Is) {
  for (const int64_t m : {1, 16, 17, 33, 65, 130}) {
    for (const auto& [n, k] : {std::pair{5, 3}, {128, 256}, {257, 130}}) {
      OpCase c = gemm_case(m, n, k);
      c.inputs[0].fill = fill_whole(1);
      c.inputs[1].fill = fill_whole(2);
      c.max_calc_diff = 0;
      const OpResult got = check_op(c);
      ASSERT_EQ(got.outputs.size(), 1U);
      EXPECT_TRUE(got.outputs[0].bytes == run_op_reference(c).outputs[0].bytes) << m << " " << n << " " << k;
    }
  }
}

TEST(Gemm, CutsIntoMTilesTimesNTiles) {
  EXPECT_EQ(run_op_tiles(gemm_case(16, 257, 8), FinalizerMode::kTasks, 1).num_tiles, 3U);
  EXPECT_EQ(run_op_tiles(gemm_case(33, 128, 8), FinalizerMode::kTasks, 1).num_tiles, 1U);
  EXPECT_EQ(run_op_tiles(gemm_case(65, 129, 8), FinalizerMode::kTasks, 1).num_tiles, 4U);
}

// A row's bits do not depend on how many other rows there are (another M tile).
TEST(Gemm, RowsDoNotDependOnM) {
  const OpResult one = run_op_tiles(gemm_case(1, 130, 333), FinalizerMode::kTasks, 1);
  const OpResult many = run_op_tiles(gemm_case(70, 130, 333), FinalizerMode::kTasks, 1);
  const auto& row = one.outputs[0].bytes;
  EXPECT_TRUE(std::equal(row.begin(), row.end(), many.outputs[0].bytes.begin()));
}

TEST(Gemm, RefusesOperandsThatDoNotMatch) {
  const auto error_of = [](const Shape& w_shape) {
    OpGraph graph("g");
    const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 512});
    const Tensor w = graph.bound_weight("proj", DType::kBF16, w_shape);
    graph.gemm(x, w, "mm");
    return graph.status() ? std::string() : graph.status().error().to_string();
  };
  EXPECT_EQ(error_of({64, 512}), "");
  const std::string message = error_of({512, 64});
  for (const char* part : {"mm", "proj", "[512, 64]", "[*, 512]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(error_of({"N", 512}).find("constant"), std::string::npos) << error_of({"N", 512});
}

TEST(Gemm, InstructionCheckKeepsTilesInside) {
  const InstructionFuzzResult r = fuzz_check_instruction(gemm_case(70, 140, 70), FinalizerMode::kTasks, 3000, 5);
  EXPECT_GT(r.num_accepted, 300U);
  EXPECT_GT(r.num_refused, 300U);
}

}  // namespace
}  // namespace megartp::test::gemm_test
