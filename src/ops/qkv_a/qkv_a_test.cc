// qkv_a: against its reference on many shapes, the same bits for every cut, the cache record byte by byte, stages and
// checks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/math.h"
#include "ops/common/paged_cache.h"
#include "ops/qkv_a/qkv_a_abi.h"
#include "support/op_harness.h"
#include "support/test_lower_context.h"

namespace megartp::test::qkv_a_test {
namespace {

using ops::QkvASlot;

struct Dims {
  int64_t m = 16, hidden = 512, q_lora = 256, kv_lora = 128, rope = 64;
};
constexpr int64_t kPositions = 50;
constexpr int64_t kPages = 3;
constexpr double kCacheFill = 0x5a;

// Distinct slots, neither sorted nor adjacent.
std::vector<int64_t> slots_of(int64_t m) {
  std::vector<int64_t> slots;
  for (int64_t r = 0; r < m; ++r) slots.push_back((r * 37 + 11) % (kPages * ops::kPageTokens));
  return slots;
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

OpCase make_case(const Dims& d, Attrs attrs = {}) {
  OpCase c;
  c.kind = "qkv_a";
  c.attrs = std::move(attrs);
  c.shapes.set("M", d.m);
  const int64_t kb = ceil_div<int64_t>(d.hidden, 128);
  const int64_t n_kv = d.kv_lora + d.rope;
  const int64_t record = ops::mla_record_bytes(d.kv_lora, d.rope);
  c.inputs = {
      {"x", DType::kF8E4M3, {"M", d.hidden}, fill_normal(1, 100), true},
      {"x_scale", DType::kF32, {"M", kb}, fill_uniform(2, 0.003, 0.01), true},
      {"q_a", DType::kF8E4M3, {d.q_lora, d.hidden}, fill_normal(3, 100)},
      {"q_a_scale", DType::kF32, {ceil_div<int64_t>(d.q_lora, 128), kb}, fill_uniform(4, 1e-4, 4e-4)},
      {"kv_a", DType::kF8E4M3, {n_kv, d.hidden}, fill_normal(5, 100)},
      {"kv_a_scale", DType::kF32, {ceil_div<int64_t>(n_kv, 128), kb}, fill_uniform(6, 1e-4, 4e-4)},
      {"q_norm", DType::kBF16, {d.q_lora}, fill_normal(7, 0.2, 1.0)},
      {"kv_norm", DType::kBF16, {d.kv_lora}, fill_normal(8, 0.2, 1.0)},
      {"positions", DType::kI32, {"M"}, fill_int(9, 0, kPositions), true},
      {"cos_sin", DType::kF32, {kPositions, d.rope}, fill_cos_sin},
      {"slot_mapping", DType::kI32, {"M"}, fill_values(slots_of(d.m)), true},
      {"mla_kv_cache", DType::kU8, {kPages, ops::kPageTokens * record}, fill_const(kCacheFill), false, true},
  };
  return c;
}

// README: the only differences from the reference are single steps of a rounded value (bf16 2^-8, e4m3 at most 1/8 of
// itself) where the fp32 and the double sum fall on two sides of a rounding edge. One such step among n values of
// similar size moves calc_diff by at most (1/8)^2 / 2 / n; allow one per 1,000 values and one more.
double code_limit(int64_t n) { return (1.0 / 128) * (static_cast<double>(n) / 1000 + 1) / static_cast<double>(n); }
double bf16_limit(int64_t n) { return 0x1p-17 * (static_cast<double>(n) / 1000 + 1) / static_cast<double>(n); }

OpResult check_against_reference(const Dims& d, Attrs attrs = {}) {
  SCOPED_TRACE("m=" + std::to_string(d.m) + " hidden=" + std::to_string(d.hidden) + " q_lora=" +
               std::to_string(d.q_lora) + " kv_lora=" + std::to_string(d.kv_lora) + " rope=" + std::to_string(d.rope));
  OpCase c = make_case(d, std::move(attrs));
  c.max_calc_diff_of["q"] = code_limit(d.m * d.q_lora);
  c.max_calc_diff_of["kv"] = bf16_limit(d.m * (d.kv_lora + d.rope));
  // Of the bytes that rows write, two in 1,000 and one value.
  const double written = static_cast<double>(d.m * ops::mla_record_bytes(d.kv_lora, d.rope));
  const double all = static_cast<double>(kPages * ops::kPageTokens * ops::mla_record_bytes(d.kv_lora, d.rope));
  c.max_byte_mismatch = (written * 2e-3 + 4) / all;
  return check_op(c);
}

TEST(QkvA, AgreesWithTheReference) {
  for (const Dims& d : std::vector<Dims>{{16, 512, 256, 128, 64},
                                         {1, 128, 128, 128, 64},
                                         {3, 300, 200, 72, 8},  // ragged K, groups and N tiles
                                         {5, 64, 6, 3, 2},      // everything tiny, scales unaligned in the record
                                         {17, 256, 130, 130, 10},
                                         {33, 640, 128, 256, 32},
                                         {70, 256, 96, 40, 16}})
    check_against_reference(d);
}

TEST(QkvA, AgreesWithTheReferenceForEveryOption) {
  const Dims d{7, 384, 160, 136, 16};
  check_against_reference(d, {{"pow2_scale", true}, {"mla_pow2_scale", false}});
  check_against_reference(d, {{"pow2_scale", true}, {"mla_pow2_scale", true}, {"eps", 1.0}});
  check_against_reference(d, {{"split_k", int64_t{1}}});
  check_against_reference(d, {{"split_k", int64_t{2}}});
  check_against_reference(d, {{"split_k", int64_t{1000}}});  // clamped to the 3 K blocks
}

TEST(QkvA, DeepSeekShape) { check_against_reference({2, 384, 1536, 512, 64}); }

// A row's bits do not depend on how many rows share its M tile.
TEST(QkvA, SameBitsForEveryBlockM) {
  Dims d{70, 384, 160, 136, 16};
  const OpResult all = run_op_tiles(make_case(d), FinalizerMode::kFused, 3);  // tiles of 64 rows
  for (const int64_t m : {16, 32, 1}) {
    d.m = m;
    const OpResult part = run_op_tiles(make_case(d), FinalizerMode::kFused, 4);
    for (size_t i = 0; i < part.outputs.size(); ++i)
      EXPECT_EQ(std::memcmp(part.outputs[i].bytes.data(), all.outputs[i].bytes.data(), part.outputs[i].bytes.size()), 0)
          << "output " << i << " of M=" << m;
    const size_t record = part.inputs[ops::kQkvACache].bytes.size() / static_cast<size_t>(kPages * ops::kPageTokens);
    for (const int64_t slot : slots_of(m))
      EXPECT_EQ(std::memcmp(part.inputs[ops::kQkvACache].bytes.data() + static_cast<size_t>(slot) * record,
                            all.inputs[ops::kQkvACache].bytes.data() + static_cast<size_t>(slot) * record, record),
                0)
          << "record of slot " << slot << " of M=" << m;
  }
}

// The record follows from `kv` exactly: codes and scales of the latent in groups of 128, then the rotated key.
TEST(QkvA, CacheRecordHoldsTheRow) {
  const Dims d{5, 256, 64, 200, 12};
  for (const bool pow2 : {false, true}) {
    const OpResult r = run_op_tiles(make_case(d, {{"mla_pow2_scale", pow2}}), FinalizerMode::kTasks, 5);
    const auto* cache = r.inputs[ops::kQkvACache].as<uint8_t>();
    const auto record_bytes = static_cast<size_t>(ops::mla_record_bytes(d.kv_lora, d.rope));
    ASSERT_EQ(record_bytes, 200U + 8U + 24U);
    std::set<int64_t> used;
    for (int64_t m = 0; m < d.m; ++m) {
      const bf16* kv = r.outputs[2].as<bf16>() + m * (d.kv_lora + d.rope);
      const int64_t slot = slots_of(d.m)[static_cast<size_t>(m)];
      used.insert(slot);
      const uint8_t* record = cache + static_cast<size_t>(slot) * record_bytes;
      for (int64_t g = 0; g < 2; ++g) {
        float amax = 1e-4F;
        const int64_t end = std::min<int64_t>(d.kv_lora, (g + 1) * 128);
        for (int64_t i = g * 128; i < end; ++i) amax = std::max(amax, std::fabs(to_float(kv[i])));
        float want = amax / 448.0F;
        if (pow2) want = std::exp2(std::ceil(std::log2(want)));
        float scale = 0;
        std::memcpy(&scale, record + 200 + 4 * g, 4);
        EXPECT_EQ(scale, want);
        for (int64_t i = g * 128; i < end; ++i)
          EXPECT_EQ(record[i], to_e4m3(to_float(kv[i]) / scale).bits) << m << " " << i;
      }
      EXPECT_EQ(std::memcmp(record + 208, kv + d.kv_lora, 24), 0);
    }
    for (int64_t slot = 0; slot < kPages * ops::kPageTokens; ++slot) {
      if (used.contains(slot)) continue;
      const uint8_t* record = cache + static_cast<size_t>(slot) * record_bytes;
      EXPECT_TRUE(std::all_of(record, record + record_bytes, [](uint8_t b) { return b == 0x5a; })) << "slot " << slot;
    }
  }
}

OpGraph graph_of(const OpCase& c) {
  OpGraph graph("test");
  std::vector<Tensor> inputs;
  for (const OpInput& in : c.inputs)
    inputs.push_back(in.is_state ? graph.state(in.name, in.dtype, in.shape)
                                 : graph.runtime_arg(in.name, in.dtype, in.shape));
  graph.op(c.kind, "B0", inputs, c.attrs);
  return graph;
}

TEST(QkvA, CountsOfGlm) {
  const OpCase c = make_case({16, 6144, 2048, 512, 64});
  const OpGraph graph = graph_of(c);
  ASSERT_TRUE(graph.status());
  TestLowerContext fused(graph, c.shapes, FinalizerMode::kFused);
  const auto one = find_op_family("qkv_a")->lower(fused).value();
  EXPECT_EQ(one[0]->num_tiles, 84U);
  EXPECT_EQ(one[0]->num_join_groups, 1U);
  EXPECT_EQ(one[0]->num_final_tiles, 16U);
  TestLowerContext tasks(graph, c.shapes, FinalizerMode::kTasks);
  const auto two = find_op_family("qkv_a")->lower(tasks).value();
  EXPECT_EQ(two[0]->num_tiles, 84U);
  EXPECT_EQ(two[1]->num_tiles, 16U);
}

TEST(QkvA, StagesJoinAndPublish) {
  const OpCase c = make_case({70, 512, 256, 128, 64});
  const OpGraph graph = graph_of(c);
  ASSERT_TRUE(graph.status());
  TestLowerContext fused(graph, c.shapes, FinalizerMode::kFused);
  const auto stages = find_op_family("qkv_a")->lower(fused).value();
  ASSERT_EQ(stages.size(), 1U);
  const Stage& s = *stages[0];
  EXPECT_EQ(s.name, "B0");
  EXPECT_EQ(s.slots.size(), abi::kOperandSlots);
  EXPECT_EQ(s.num_join_groups, 2U);
  EXPECT_EQ(s.num_final_tiles, 70U);
  EXPECT_TRUE(fused.tensor(s.slots[ops::kQkvAPartial]).is_partial);
  std::vector<uint32_t> members(2);
  for (uint32_t i = 0; i < s.num_tiles; ++i) {
    TileDesc t;
    s.tile(i, t);
    ++members.at(t.join_group);
  }
  EXPECT_THAT(members, testing::Each(s.num_tiles / 2));
  for (const uint32_t row : {0U, 63U, 64U, 69U}) {
    FinalDesc f;
    s.final_tile(row, f);
    EXPECT_EQ(f.join_group, row / 64);
    ASSERT_EQ(f.writes.size(), 4U);
    EXPECT_EQ(f.writes[0].publication, 0);
    EXPECT_EQ(f.writes[1].publication, 0);
    EXPECT_EQ(f.writes[2].publication, 1);
    EXPECT_EQ(f.writes[3].publication, 1);
    EXPECT_TRUE(f.writes[3].scatter);
  }
  TestLowerContext tasks(graph, c.shapes, FinalizerMode::kTasks);
  const auto two = find_op_family("qkv_a")->lower(tasks).value();
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0]->name, "B0.gemm");
  EXPECT_EQ(two[1]->name, "B0.finalize");
  EXPECT_EQ(two[1]->num_tiles, 70U);
}

TEST(QkvA, RefusesInstructionsThatLeaveTheirOperands) {
  const OpCase c = make_case({5, 300, 200, 72, 8});
  const OpGraph graph = graph_of(c);
  const OpFamily& family = *find_op_family("qkv_a");
  for (const FinalizerMode mode : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
    TestLowerContext context(graph, c.shapes, mode);
    const auto stages = family.lower(context).value();
    for (const auto& stage : stages) {
      std::vector<OperandType> operands;
      const abi::Instruction good = context.instruction(*stage, stage->num_tiles - 1, operands);
      const auto accepts = [&](const abi::Instruction& i, const std::vector<uint32_t>& spec) {
        return family.check_instruction(InstructionCheck{i, spec, operands}).has_value();
      };
      ASSERT_TRUE(accepts(good, stage->spec)) << stage->name;
      for (uint32_t w = 0; w < abi::num_payload(good); ++w) {
        abi::Instruction bad = good;
        bad.payload[w] = 0xffffffffU;
        EXPECT_FALSE(accepts(bad, stage->spec)) << stage->name << " payload word " << w;
      }
      abi::Instruction bad = good;
      bad.counts = abi::make_counts(0, 0, abi::num_payload(good) + 1);
      EXPECT_FALSE(accepts(bad, stage->spec)) << stage->name;
      for (size_t w = 0; w < stage->spec.size(); ++w) {
        std::vector<uint32_t> spec = stage->spec;
        spec[w] = 0xffffffffU;
        EXPECT_FALSE(accepts(good, spec)) << stage->name << " spec word " << w;
      }
      EXPECT_FALSE(accepts(good, {stage->spec.begin(), stage->spec.end() - 1})) << stage->name;
      for (size_t slot = 0; slot < operands.size(); ++slot) {
        if (!operands[slot].present) continue;
        const OperandType saved = operands[slot];
        operands[slot].present = false;
        EXPECT_FALSE(accepts(good, stage->spec)) << stage->name << " without operand " << slot;
        operands[slot] = saved;
        operands[slot].dtype = DType::kI64;
        EXPECT_FALSE(accepts(good, stage->spec)) << stage->name << " operand " << slot << " of another dtype";
        operands[slot] = saved;
      }
    }
  }
}

TEST(QkvA, InferenceNamesWhatIsWrong) {
  const auto error_of = [](const OpCase& c) {
    const OpGraph graph = graph_of(c);
    return graph.status() ? std::string("no error") : graph.status().error().to_string();
  };
  const auto with_shape = [](uint32_t input, Shape shape) {
    OpCase c = make_case({16, 512, 256, 128, 64});
    c.inputs[input].shape = std::move(shape);
    return c;
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(error_of(make_case({16, 512, 256, 128, 64}, {{"split_k", int64_t{0}}})), HasSubstr("'split_k' is 0"));
  EXPECT_THAT(error_of(make_case({16, 512, 256, 128, 64}, {{"eps", -1.0}})), HasSubstr("'eps' is -1"));
  EXPECT_THAT(error_of(with_shape(ops::kQkvAXScale, {"M", 5})),
              AllOf(HasSubstr("'B0'"), HasSubstr("x_scale"), HasSubstr("[M, 4]")));
  EXPECT_THAT(error_of(with_shape(ops::kQkvAKvProjScale, {1, 4})), AllOf(HasSubstr("kv_a_scale"), HasSubstr("[2, 4]")));
  EXPECT_THAT(error_of(with_shape(ops::kQkvACosSin, {50, 63})), AllOf(HasSubstr("cos_sin"), HasSubstr("even rope")));
  EXPECT_THAT(error_of(with_shape(ops::kQkvACosSin, {50, 192})), AllOf(HasSubstr("cos_sin"), HasSubstr("below 192")));
  EXPECT_THAT(error_of(with_shape(ops::kQkvAKvNorm, {127})), AllOf(HasSubstr("kv_norm"), HasSubstr("[128]")));
  EXPECT_THAT(error_of(with_shape(ops::kQkvACache, {3, 64})),
              AllOf(HasSubstr("mla_kv_cache"), HasSubstr("[*, 16640]")));
  EXPECT_THAT(error_of(with_shape(ops::kQkvAPositions, {"N"})), AllOf(HasSubstr("positions"), HasSubstr("[M]")));
}

}  // namespace
}  // namespace megartp::test::qkv_a_test
