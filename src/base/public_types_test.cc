// dim, dtype, error and math: the small types of include/megartp and src/base.
#include <limits>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/math.h"
#include "base/rng.h"
#include "megartp/dim.h"
#include "megartp/dtype.h"
#include "megartp/error.h"

namespace megartp {
namespace {

TEST(Dim, TextRoundTrip) {
  const Dim dims[] = {0,
                      1,
                      6144,
                      std::numeric_limits<int64_t>::max(),
                      "M",
                      "KV",
                      "_x9",
                      Dim::sym("KV", 256),
                      Dim::sym("a_long_symbol_name_of_32_letters", 2),
                      Dim::sym("M", 1 << 20)};
  for (const Dim& d : dims) {
    const auto back = parse_dim(to_string(d));
    ASSERT_TRUE(back) << to_string(d);
    EXPECT_EQ(*back, d) << to_string(d);
  }
  EXPECT_EQ(to_string(Dim(6144)), "6144");
  EXPECT_EQ(to_string(Dim::sym("KV", 256)), "round_up(KV, 256)");
  const Rng rng(3);
  for (uint64_t i = 0; i < 1000; ++i) {
    const Dim d = Dim::sym(fmt::format("S{}", rng.below(i, 1000)), 1 + static_cast<int64_t>(rng.below(i, 1 << 20)));
    EXPECT_EQ(parse_dim(to_string(d)).value(), d);
  }
}

TEST(Dim, RefusesMalformedText) {
  for (const char* text : {"",
                           " ",
                           "-1",
                           "+1",
                           "1.5",
                           "1 ",
                           " M",
                           "M N",
                           "9M",
                           "M-1",
                           "round_up()",
                           "round_up(KV)",
                           "round_up(KV,256)",
                           "round_up(KV, 0)",
                           "round_up(KV, 1)",
                           "round_up(KV, -8)",
                           "round_up(KV, 1048577)",
                           "round_up(8, 8)",
                           "round_up(KV, 256",
                           "round_up(KV, 256) ",
                           "round_up(round_up(KV, 8), 8)",
                           "99999999999999999999",
                           "abcdefghijklmnopqrstuvwxyz1234567"}) {
    const auto d = parse_dim(text);
    ASSERT_FALSE(d) << text;
    EXPECT_EQ(d.error().code, ErrorCode::kParse);
    EXPECT_NE(d.error().message.find(fmt::format("'{}'", text)), std::string::npos);
  }
}

TEST(Dim, ShapesPrint) {
  EXPECT_EQ(to_string(Shape{"M", 6144}), "[M, 6144]");
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(std::vector<int64_t>{16, 1, 2}), "[16, 1, 2]");
}

TEST(ShapeEnv, EvaluatesSymbols) {
  ShapeEnv env;
  env.set("M", 16);
  env.set("KV", 8185);
  EXPECT_EQ(env.eval(Shape{"M", 6144, "KV", Dim::sym("KV", 256)}).value(),
            (std::vector<int64_t>{16, 6144, 8185, 8192}));
  env.set("KV", 8192);
  EXPECT_EQ(env.eval(Dim::sym("KV", 256)).value(), 8192);
  env.set("KV", 0);
  EXPECT_EQ(env.eval(Dim::sym("KV", 256)).value(), 0);
}

TEST(ShapeEnv, ErrorsNameTheSymbol) {
  ShapeEnv env;
  const auto unknown = env.eval(Shape{6144, "KV"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("'KV'"), std::string::npos);
  for (const int64_t bad : {int64_t{-1}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    env.set("M", bad);
    const auto r = env.eval(Dim::sym("M", 64));
    ASSERT_FALSE(r);
    EXPECT_NE(r.error().message.find(std::to_string(bad)), std::string::npos);
  }
  env.set("M", 5);
  for (const int64_t align : {0, -8}) EXPECT_FALSE(env.eval(Dim::sym("M", align)));
}

TEST(DType, NamesRoundTrip) {
  std::set<std::string_view> names;
  for (const DType d : {DType::kF64, DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI64, DType::kI32, DType::kU8}) {
    EXPECT_EQ(parse_dtype(to_string(d)), d);
    EXPECT_GT(size_in_bytes(d), 0U);
    names.insert(to_string(d));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"F64", "F32", "BF16", "F8_E4M3", "I64", "I32", "U8"}));
  for (const char* bad : {"", "f32", "F16", "F8", "F32 ", "?"}) EXPECT_EQ(parse_dtype(bad), std::nullopt) << bad;
  EXPECT_EQ(size_in_bytes(DType::kF64), 8U);
  EXPECT_EQ(size_in_bytes(DType::kI32), 4U);
  EXPECT_EQ(size_in_bytes(DType::kBF16), 2U);
  EXPECT_EQ(size_in_bytes(DType::kF8E4M3), 1U);
}

TEST(Error, PrintsMessageAndContext) {
  Error e{ErrorCode::kNotFound, "no tensor 'w'", {}};
  EXPECT_EQ(e.to_string(), "no tensor 'w'");
  const Error more = std::move(e).with("path", "a.safetensors").with("op", "B0");
  EXPECT_EQ(more.to_string(), "no tensor 'w' (path=a.safetensors, op=B0)");
}

TEST(Error, EveryCodeHasAnExitCodeAndAName) {
  const std::pair<ErrorCode, int> expected[] = {
      {ErrorCode::kMismatch, 1},    {ErrorCode::kInvalidArgument, 2}, {ErrorCode::kNotFound, 3},
      {ErrorCode::kParse, 3},       {ErrorCode::kUnsupported, 4},     {ErrorCode::kIo, 5},
      {ErrorCode::kOutOfMemory, 5}, {ErrorCode::kOutOfResources, 5},  {ErrorCode::kDeviceError, 5},
      {ErrorCode::kTimeout, 6},     {ErrorCode::kDeadlock, 6},        {ErrorCode::kInternal, 70},
      {ErrorCode::kCancelled, 130}};
  std::set<std::string_view> names;
  for (const auto& [code, exit] : expected) {
    EXPECT_EQ(exit_code(code), exit) << to_string(code);
    names.insert(to_string(code));
  }
  EXPECT_EQ(names.size(), std::size(expected));
  EXPECT_EQ(to_string(ErrorCode::kInvalidArgument), "invalid_argument");
  EXPECT_EQ(to_string(ErrorCode::kDeadlock), "deadlock");
}

Result<std::unique_ptr<int>> make_number(int value) {
  if (value < 0) return make_error(ErrorCode::kInvalidArgument, "negative");
  return std::make_unique<int>(value);
}
Status check_small(int value) {
  if (value > 10) return make_error(ErrorCode::kOutOfResources, "too large");
  return {};
}
Result<int> twice(int value, int& num_evaluated) {
  const std::unique_ptr<int> number = MEGARTP_TRY(make_number((++num_evaluated, value)));
  MEGARTP_TRY(check_small(*number));
  return *number * 2;
}

TEST(Try, YieldsTheValueOrReturnsTheError) {
  int num_evaluated = 0;
  EXPECT_EQ(twice(4, num_evaluated).value(), 8);
  EXPECT_EQ(num_evaluated, 1);
  const Result<int> negative = twice(-1, num_evaluated);
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().message, "negative");
  const Result<int> large = twice(11, num_evaluated);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kOutOfResources);
}

TEST(Math, CeilDivAndRoundUp) {
  EXPECT_EQ(ceil_div(0, 128), 0);
  EXPECT_EQ(ceil_div(1, 128), 1);
  EXPECT_EQ(ceil_div(128, 128), 1);
  EXPECT_EQ(ceil_div(int64_t{2624}, int64_t{128}), 21);
  EXPECT_EQ(round_up(8185, 256), 8192);
  EXPECT_EQ(round_up(8192, 256), 8192);
}

}  // namespace
}  // namespace megartp
