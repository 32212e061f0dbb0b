#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/rng.h"
#include "support/instruction_fuzz.h"
#include "support/op_harness.h"

namespace megartp::test::add_test {
namespace {

OpCase add_case(int64_t m, int64_t n) {
  OpCase c;
  c.kind = "add";
  c.shapes.set("M", m);
  c.inputs = {{"a", DType::kBF16, {"M", Dim(n)}, fill_normal(1), true},
              {"b", DType::kBF16, {"M", Dim(n)}, fill_normal(2), true}};
  c.max_calc_diff = 0;
  return c;
}

TEST(Add, AgreesWithTheReferenceOnEveryShape) {
  for (const int64_t m : {1, 3, 17, 33})
    for (const int64_t n : {1, 7, 128, 513}) check_op(add_case(m, n));
}

// Any pair of codes: NaN, infinities, subnormals, exponents far apart, sums that overflow.
TEST(Add, IsExactlyRoundedForAllKindsOfValues) {
  OpCase c = add_case(64, 1024);
  for (size_t i = 0; i < 2; ++i) {
    c.inputs[i].fill = [i](HostBuffer& b) {
      const Rng rng(3, i);
      for (size_t e = 0; e < b.count(); ++e) {
        // Half of the pairs lie close together, where ties occur.
        const auto bits = static_cast<uint16_t>(Rng(3, 7).bits(e));
        b.as<bf16>()[e] =
            bf16{e % 2 == 0 ? static_cast<uint16_t>(rng.bits(e)) : static_cast<uint16_t>(bits + rng.below(e, 4096))};
      }
    };
    c.inputs[i].tracked = false;
  }
  const OpResult got = run_op_tiles(c, FinalizerMode::kTasks, 1);
  const OpResult want = run_op_reference(c);
  ASSERT_EQ(got.outputs.size(), 1U);
  EXPECT_TRUE(got.outputs[0].bytes == want.outputs[0].bytes);
  EXPECT_EQ(got.num_tiles, 64U);
}

TEST(Add, RefusesOperandsThatDoNotMatch) {
  OpGraph graph("g");
  const Tensor a = graph.runtime_arg("left", DType::kBF16, {"M", 512});
  const Tensor b = graph.runtime_arg("right", DType::kBF16, {"M", 511});
  EXPECT_FALSE(graph.add(a, b, "sum").valid());
  ASSERT_FALSE(graph.status());
  const std::string message = graph.status().error().to_string();
  for (const char* part : {"sum", "right", "[M, 511]", "[M, 512]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Add, InstructionCheckKeepsTilesInside) {
  const InstructionFuzzResult r = fuzz_check_instruction(add_case(17, 70), FinalizerMode::kTasks, 4000, 5);
  EXPECT_GT(r.num_accepted, 400U);
  EXPECT_GT(r.num_refused, 400U);
}

}  // namespace
}  // namespace megartp::test::add_test
