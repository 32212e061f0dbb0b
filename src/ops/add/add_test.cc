#include <gtest/gtest.h>

#include "support/op_harness.h"

namespace megartp::test {
namespace {

OpCase add_case(int64_t m, int64_t n) {
  OpCase c;
  c.kind = "add";
  c.shapes.set("M", m);
  c.inputs = {{"a", DType::kBF16, {"M", Dim(n)}, fill_normal(1), true}, {"b", DType::kBF16, {"M", Dim(n)}, fill_normal(2), true}};
  c.max_calc_diff = 0;
  return c;
}

TEST(Add, AgreesWithTheReferenceOnEveryShape) {
  for (const int64_t m : {1, 3, 17})
    for (const int64_t n : {1, 7, 128, 513}) check_op(add_case(m, n));
}

}  // namespace
}  // namespace megartp::test
