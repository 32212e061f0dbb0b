#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/float8.h"
#include "ops/common/hadamard.h"
#include "ops/indexer_k/indexer_k_abi.h"
#include "support/lower_op.h"
#include "support/op_harness.h"

namespace megartp::test::indexer_k_test {
namespace {

struct Sizes {
  int64_t m, hidden, dim, rope;
  Attrs attrs;
};

constexpr int64_t kPositions = 50;

std::vector<int64_t> shuffled_slots(int64_t count, int64_t num_slots) {
  std::vector<int64_t> slots(static_cast<size_t>(num_slots));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(3));
  slots.resize(static_cast<size_t>(count));
  return slots;
}

OpCase indexer_k_case(const Sizes& s) {
  const int64_t pages = (s.m + 63) / 64 + 1;
  const int64_t blocks = (s.hidden + 127) / 128;
  OpCase c;
  c.kind = "indexer_k";
  c.attrs = s.attrs;
  c.shapes.set("M", s.m);
  c.shapes.set("PAGES", pages);
  c.inputs = {{"x", DType::kF8E4M3, {"M", Dim(s.hidden)}, fill_normal(1, 100), true},
              {"x_scale", DType::kF32, {"M", Dim(blocks)}, fill_uniform(2, 0.005, 0.02), true},
              {"wk", DType::kF8E4M3, {Dim(s.dim), Dim(s.hidden)}, fill_normal(3, 60)},
              {"wk_scale", DType::kF32, {Dim((s.dim + 127) / 128), Dim(blocks)}, fill_uniform(4, 1e-4, 3e-4)},
              {"norm_w", DType::kBF16, {Dim(s.dim)}, fill_normal(5, 0.2, 1.0)},
              {"norm_b", DType::kBF16, {Dim(s.dim)}, fill_normal(6, 0.1)},
              {"positions", DType::kI32, {"M"}, fill_int(7, 0, kPositions), true},
              {"cos_sin", DType::kF32, {Dim(kPositions), Dim(s.rope)}, fill_uniform(8, -1, 1), true},
              {"slot_mapping", DType::kI32, {"M"}, fill_values(shuffled_slots(s.m, pages * 64)), true},
              {"index_k_cache", DType::kU8, {"PAGES", Dim(64 * (s.dim + 4))}, fill_int(9, 0, 120), false, true}};
  return c;
}

// The key in a slot, dequantised.
std::vector<double> cached_key(const HostBuffer& cache, int64_t dim, int64_t slot) {
  const uint8_t* page = cache.as<uint8_t>() + slot / 64 * 64 * (dim + 4);
  float scale = 0;
  std::memcpy(&scale, page + 64 * dim + slot % 64 * 4, 4);
  std::vector<double> key;
  for (int64_t d = 0; d < dim; ++d)
    key.push_back(static_cast<double>(to_float(e4m3{page[slot % 64 * dim + d]})) * static_cast<double>(scale));
  return key;
}

std::vector<double> new_keys(const HostBuffer& cache, const Sizes& s) {
  std::vector<double> all;
  for (const int64_t slot : shuffled_slots(s.m, cache.dims[0] * 64)) {
    const auto key = cached_key(cache, s.dim, slot);
    all.insert(all.end(), key.begin(), key.end());
  }
  return all;
}

TEST(IndexerK, AgreesWithTheReferenceOnEveryShapeAndOption) {
  const Sizes sizes[] = {
      {1, 1, 2, 2, {}},
      {16, 768, 128, 64, {}},                                           // GLM-5.2's key
      {3, 200, 128, 64, {{"interleave", false}}},                       // ragged K, half-split
      {5, 640, 64, 32, {{"hadamard", true}, {"split_k", int64_t{3}}}},  // D = 64, uneven slices
      {17, 384, 128, 64, {{"pow2_scale", true}, {"split_k", int64_t{1}}}},
      {33, 130, 40, 40, {{"eps", 1e-2}}},  // all dims rotated; a ragged M tile
      {70, 256, 130, 6, {}},               // two N tiles in one group
      {2, 300, 128, 64, {{"hadamard", true}, {"interleave", false}, {"pow2_scale", true}}},
  };
  for (const Sizes& s : sizes) {
    SCOPED_TRACE(testing::Message() << "m " << s.m << ", hidden " << s.hidden << ", dim " << s.dim);
    const OpCase c = indexer_k_case(s);
    const OpResult result = check_op(c);
    const OpResult ref = run_op_reference(c);
    ASSERT_EQ(result.inputs.size(), 10U);
    EXPECT_LE(calc_diff(new_keys(result.inputs[9], s), new_keys(ref.inputs[9], s)), 1e-6);
  }
}

// Only the named slots change, every one of them does, and the key is a rotated LayerNorm: of unit variance before gain
// and bias.
TEST(IndexerK, WritesOneNormalisedKeyPerSlot) {
  const Sizes s{16, 256, 128, 64, {}};
  OpCase c = indexer_k_case(s);
  c.inputs[4].fill = fill_const(1);
  c.inputs[5].fill = fill_const(0);
  c.inputs[7].fill = [](HostBuffer& b) {
    for (size_t i = 0; i < b.count(); ++i) {
      const size_t position = i / 64;
      const double angle = static_cast<double>(position) * 0.1 * static_cast<double>(i % 32);
      b.as<float>()[i] = static_cast<float>(i % 64 < 32 ? std::cos(angle) : std::sin(angle));
    }
  };
  const OpResult result = check_op(c);
  for (const int64_t slot : shuffled_slots(s.m, 128)) {
    double squares = 0;
    for (const double v : cached_key(result.inputs[9], s.dim, slot)) squares += v * v;
    // Without rounding it would be 128. Each square is off by up to twice e4m3's 1/16; the error's standard deviation
    // is about 2 * 0.025 * sqrt(sum of fourth powers, 3 * 128) = 1, and five of it are allowed.
    EXPECT_NEAR(squares, 128.0, 5.0) << "slot " << slot;
  }
}

// The Hadamard rotation is orthogonal: the key's dot products survive it, its values do not.
TEST(IndexerK, HadamardKeepsLengthAndChangesValues) {
  const Sizes plain{4, 256, 64, 32, {}};
  Sizes rotated = plain;
  rotated.attrs = {{"hadamard", true}};
  const auto a = new_keys(run_op_tiles(indexer_k_case(plain), FinalizerMode::kFused, 1).inputs[9], plain);
  const auto b = new_keys(run_op_tiles(indexer_k_case(rotated), FinalizerMode::kFused, 1).inputs[9], rotated);
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  EXPECT_NEAR(bb / aa, 1.0, 5e-3);
  EXPECT_GT(calc_diff(a, b), 0.1);
}

TEST(IndexerK, DropsRowsThatPointOutsideTheCacheOrTheTable) {
  const Sizes s{5, 256, 64, 32, {}};
  OpCase c = indexer_k_case(s);
  const HostBuffer want = run_op_tiles(c, FinalizerMode::kFused, 1).inputs[9];
  auto slots = shuffled_slots(s.m, 128);
  const auto good = slots;
  slots[0] = -1;
  slots[1] = 128;
  slots[2] = 2147483647;
  c.inputs[8].fill = fill_values(slots);
  const auto positions = c.inputs[6].fill;
  c.inputs[6].fill = [positions](HostBuffer& b) {
    positions(b);
    b.as<int32_t>()[3] = kPositions;
  };
  const HostBuffer got = run_op_tiles(c, FinalizerMode::kTasks, 1).inputs[9];
  HostBuffer before = got;
  c.inputs[9].fill(before);
  for (size_t i = 0; i < good.size(); ++i)
    EXPECT_EQ(cached_key(got, s.dim, good[i]), cached_key(i < 4 ? before : want, s.dim, good[i])) << "row " << i;
}

OpGraph glm52_graph(Attrs attrs, const Shape& cos_sin = {1024, 64}, int64_t dim = 128) {
  OpGraph graph("g");
  const Tensor x = graph.runtime_arg("x", DType::kF8E4M3, {"M", 6144});
  const Tensor x_scale = graph.runtime_arg("x_scale", DType::kF32, {"M", 48});
  const Tensor wk = graph.bound_weight("wk", DType::kF8E4M3, {Dim(dim), 6144});
  const Tensor wk_scale = graph.bound_weight("wk_scale", DType::kF32, {1, 48});
  const Tensor norm_w = graph.bound_weight("norm_w", DType::kBF16, {Dim(dim)});
  const Tensor norm_b = graph.bound_weight("norm_b", DType::kBF16, {Dim(dim)});
  const Tensor positions = graph.runtime_arg("positions", DType::kI32, {"M"});
  const Tensor table = graph.runtime_arg("cos_sin", DType::kF32, cos_sin);
  const Tensor slots = graph.runtime_arg("slot_mapping", DType::kI32, {"M"});
  const Tensor cache = graph.state("cache", DType::kU8, {"PAGES", Dim(64 * (dim + 4))});
  graph.indexer_k({x, x_scale}, {wk, wk_scale}, norm_w, norm_b, {positions, table, slots}, cache, std::move(attrs),
                  "B1");
  return graph;
}

TEST(IndexerK, CutsGlm52IntoEightTilesAndOneFinalizer) {
  const OpGraph graph = glm52_graph({});
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  ShapeEnv shapes;
  shapes.set("M", 16);
  shapes.set("PAGES", 300);
  const auto fused = lower_last_op(graph, shapes, FinalizerMode::kFused);
  ASSERT_TRUE(fused);
  ASSERT_EQ(fused->size(), 1U);
  EXPECT_EQ((*fused)[0]->num_tiles, 8U);
  EXPECT_EQ((*fused)[0]->num_join_groups, 1U);
  EXPECT_EQ((*fused)[0]->num_final_tiles, 1U);
  const auto tasks = lower_last_op(graph, shapes, FinalizerMode::kTasks);
  ASSERT_TRUE(tasks);
  ASSERT_EQ(tasks->size(), 2U);
  EXPECT_EQ((*tasks)[0]->num_tiles, 8U);
  EXPECT_EQ((*tasks)[1]->num_tiles, 1U);
}

TEST(IndexerK, ErrorsNameTheProblem) {
  const auto error_of = [](const OpGraph& graph) {
    return graph.status() ? std::string() : graph.status().error().to_string();
  };
  EXPECT_THAT(error_of(glm52_graph({{"split_k", int64_t{0}}})),
              testing::HasSubstr("op 'B1': attribute 'split_k' is 0"));
  EXPECT_THAT(error_of(glm52_graph({{"eps", -1.0}})), testing::HasSubstr("'eps' is -1"));
  EXPECT_THAT(error_of(glm52_graph({}, {1024, 63})), testing::HasSubstr("'cos_sin' has shape [1024, 63]"));
  EXPECT_THAT(error_of(glm52_graph({}, {1024, 130})), testing::HasSubstr("even number of columns up to 128"));
  EXPECT_THAT(error_of(glm52_graph({{"hadamard", true}}, {1024, 64}, 96)), testing::HasSubstr("power of two"));
  EXPECT_EQ(error_of(glm52_graph({}, {1024, 64}, 96)), "");
}

TEST(IndexerK, CheckInstructionRefusesWhatWouldLeaveTheOperands) {
  const OpFamily& family = *find_op_family("indexer_k");
  const uint32_t fused = family.opcodes()[0].opcode;
  const uint32_t gemm = family.opcodes()[1].opcode;
  const uint32_t finalize = family.opcodes()[2].opcode;
  const std::vector<std::pair<DType, std::vector<int64_t>>> tensors{
      {DType::kF8E4M3, {16, 768}}, {DType::kF32, {16, 6}},  {DType::kF8E4M3, {128, 768}}, {DType::kF32, {1, 6}},
      {DType::kBF16, {128}},       {DType::kBF16, {128}},   {DType::kI32, {16}},          {DType::kF32, {1024, 64}},
      {DType::kI32, {16}},         {DType::kU8, {9, 8448}}, {DType::kF32, {3, 16, 128}}};
  ops::IndexerKSpec spec{};
  spec.gemm = {768, 3, {128, 0}};
  spec.rope = 64;
  spec.num_positions = 1024;
  spec.num_pages = 9;
  spec.eps = 1e-6F;
  const auto accepts = [&](const std::vector<uint32_t>& words, uint32_t opcode, const std::vector<uint32_t>& payload,
                           size_t missing = ~size_t{0}) {
    std::vector<OperandType> operands(abi::kOperandSlots);
    for (size_t i = 0; i < tensors.size(); ++i)
      if (i != missing) operands[i] = {true, tensors[i].first, tensors[i].second};
    abi::Instruction instruction{};
    instruction.opcode = opcode;
    instruction.counts = abi::make_counts(0, 0, static_cast<uint32_t>(payload.size()));
    std::copy(payload.begin(), payload.end(), instruction.payload);
    return family.check_instruction({instruction, words, operands}).has_value();
  };
  const std::vector<uint32_t> words = encode_spec(spec);
  const std::vector<uint32_t> tile{0, 16, 0, 128, 2, 16};
  const std::vector<uint32_t> final_tile{3, 13, 16};
  EXPECT_TRUE(accepts(words, fused, tile));
  EXPECT_TRUE(accepts(words, gemm, tile));
  EXPECT_TRUE(accepts(words, finalize, final_tile));
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_FALSE(accepts(words, fused, tile, i)) << i;
  EXPECT_FALSE(accepts(words, finalize, tile));
  EXPECT_FALSE(accepts(words, fused, final_tile));
  const size_t eps_word = offsetof(ops::IndexerKSpec, eps) / 4;
  for (size_t word = 0; word < words.size(); ++word) {
    if (word == eps_word) continue;  // any number is safe
    for (const uint32_t bad : {words[word] + 2, 0x80000000U, 0xffffffffU}) {
      auto changed = words;
      changed[word] = bad;
      EXPECT_FALSE(accepts(changed, fused, tile)) << "spec word " << word << " = " << bad;
    }
  }
  for (const auto& bad :
       {std::vector<uint32_t>{4, 13, 16}, {0xffffffffU, 1, 16}, {0, 0xffffffffU, 16}, {0, 17, 17}, {0, 8, 15}})
    EXPECT_FALSE(accepts(words, finalize, bad)) << bad[0] << ' ' << bad[1] << ' ' << bad[2];
}

TEST(Hadamard, IsItsOwnInverseAndMatchesItsDefinition) {
  for (const int64_t n : {1, 2, 8, 64, 128}) {
    std::vector<float> x;
    std::mt19937 rng(1);
    for (int64_t i = 0; i < n; ++i) x.push_back(std::normal_distribution<float>()(rng));
    std::vector<float> y = x;
    ops::hadamard_inplace(y.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      double want = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        const double sign = __builtin_popcountll(i & j) % 2 == 0 ? 1 : -1;
        want += sign * static_cast<double>(x[j]) / std::sqrt(static_cast<double>(n));
      }
      EXPECT_NEAR(static_cast<double>(y[i]), want, 1e-5) << "n " << n << ", i " << i;
    }
    ops::hadamard_inplace(y.data(), n);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-5F);
  }
}

}  // namespace
}  // namespace megartp::test::indexer_k_test
