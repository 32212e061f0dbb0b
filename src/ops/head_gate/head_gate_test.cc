#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "support/instruction_fuzz.h"
#include "support/op_harness.h"

namespace megartp::test::head_gate_test {
namespace {

OpCase gate_case(int64_t m, int64_t hidden, int64_t heads) {
  OpCase c;
  c.kind = "head_gate";
  c.shapes.set("M", m);
  c.inputs = {{"y", DType::kBF16, {"M", Dim(hidden)}, fill_normal(1), true},
              {"w", DType::kBF16, {Dim(heads), Dim(hidden)}, fill_normal(2, 0.02), true}};
  c.max_calc_diff = 1e-12;
  return c;
}

TEST(HeadGate, AgreesWithTheReferenceOnEveryShape) {
  for (const int64_t m : {1, 3, 17, 33, 65})
    for (const auto& [hidden, heads] : {std::pair{1, 1}, {128, 32}, {130, 5}, {333, 64}, {256, 130}})
      check_op(gate_case(m, hidden, heads));
}

TEST(HeadGate, Glm52HasFortyEightSlices) {
  const OpResult r = run_op_tiles(gate_case(16, 6144, 32), FinalizerMode::kFused, 1);
  EXPECT_EQ(r.num_tiles, 48U);
  ASSERT_EQ(r.outputs.size(), 1U);
  EXPECT_EQ(r.outputs[0].dims, (std::vector<int64_t>{48, 16, 32}));
}

// The partials of a row add up to the row's gate.
TEST(HeadGate, PartialsAddUp) {
  const int64_t hidden = 333;
  const OpResult r = run_op_tiles(gate_case(3, hidden, 5), FinalizerMode::kFused, 1);
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t h = 0; h < 5; ++h) {
      double want = 0;
      for (int64_t k = 0; k < hidden; ++k)
        want += static_cast<double>(to_float(r.inputs[0].as<bf16>()[m * hidden + k])) *
                static_cast<double>(to_float(r.inputs[1].as<bf16>()[h * hidden + k]));
      double got = 0;
      for (int64_t slice = 0; slice < 3; ++slice)
        got += static_cast<double>(r.outputs[0].as<float>()[(slice * 3 + m) * 5 + h]);
      EXPECT_NEAR(got, want, 1e-6);
    }
  }
}

TEST(HeadGate, OutputIsMarkedAsPartial) {
  OpGraph graph("g");
  const Tensor y = graph.runtime_arg("y", DType::kBF16, {"M", 6144});
  const Tensor w = graph.bound_weight("w", DType::kBF16, {32, 6144});
  const Tensor partials = graph.head_gate(y, w, "C0");
  ASSERT_TRUE(graph.status());
  EXPECT_TRUE(graph.tensor(partials.id).is_partial);
  EXPECT_FALSE(graph.tensor(y.id).is_partial);
  EXPECT_EQ(to_string(graph.tensor(partials.id).shape), "[48, M, 32]");
  EXPECT_EQ(graph.tensor(partials.id).dtype, DType::kF32);
}

TEST(HeadGate, RefusesOperandsThatDoNotMatch) {
  OpGraph graph("g");
  const Tensor y = graph.runtime_arg("y", DType::kBF16, {"M", 512});
  const Tensor w = graph.bound_weight("weights_proj", DType::kBF16, {32, 6144});
  graph.head_gate(y, w, "C0");
  ASSERT_FALSE(graph.status());
  const std::string message = graph.status().error().to_string();
  for (const char* part : {"C0", "weights_proj", "[32, 6144]", "[*, 512]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(HeadGate, InstructionCheckKeepsTilesInside) {
  const InstructionFuzzResult r = fuzz_check_instruction(gate_case(70, 300, 9), FinalizerMode::kTasks, 3000, 5);
  EXPECT_GT(r.num_accepted, 300U);
  EXPECT_GT(r.num_refused, 300U);
}

}  // namespace
}  // namespace megartp::test::head_gate_test
