#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/float8.h"
#include "ops/indexer_score/indexer_score_abi.h"
#include "ops/mega_op.h"
#include "support/lower_op.h"
#include "support/op_harness.h"

namespace megartp::test::indexer_score_test {
namespace {

struct Batch {
  int64_t heads = 32;
  int64_t dim = 128;
  std::vector<std::vector<int32_t>> lens;  // per request, per row
};

int64_t longest_of(const Batch& b) {
  int64_t longest = 1;
  for (const auto& rows : b.lens)
    for (const int32_t len : rows) longest = std::max<int64_t>(longest, len);
  return longest;
}

// Pages are dealt in a shuffled order, with one page more than needed. Whatever no row may see is NaN.
OpCase score_case(const Batch& b) {
  std::vector<int64_t> lens, table;
  std::vector<int64_t> request_lens;
  OpCase c;
  c.kind = "indexer_score";
  for (const auto& rows : b.lens) {
    lens.insert(lens.end(), rows.begin(), rows.end());
    request_lens.push_back(rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end()));
    c.shapes.requests.push_back({static_cast<int32_t>(rows.size()), static_cast<int32_t>(request_lens.back())});
  }
  const int64_t longest = longest_of(b);
  const int64_t width = (longest + 63) / 64 + 1;
  int64_t num_pages = 1;
  for (const int64_t len : request_lens) num_pages += (len + 63) / 64;
  std::vector<int64_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
  size_t next = 0;
  std::vector<std::pair<int64_t, int64_t>> visible;  // page, number of keys
  for (const int64_t len : request_lens) {
    for (int64_t i = 0; i < width; ++i) {
      const bool used = i * 64 < len;
      table.push_back(used ? pages[next] : -1);
      if (used) visible.emplace_back(pages[next++], std::min<int64_t>(64, len - i * 64));
    }
  }
  const int64_t dim = b.dim;
  const auto fill_cache = [visible, dim](HostBuffer& buffer) {
    std::mt19937 rng(11);
    std::normal_distribution<float> normal(0, 100);
    std::uniform_real_distribution<float> scales(0.005F, 0.02F);
    std::fill(buffer.bytes.begin(), buffer.bytes.end(), std::byte{0xff});
    for (const auto& [page, keys] : visible) {
      uint8_t* base = buffer.as<uint8_t>() + page * 64 * (dim + 4);
      for (int64_t i = 0; i < keys * dim; ++i) base[i] = to_e4m3(normal(rng)).bits;
      for (int64_t k = 0; k < keys; ++k) {
        const float scale = scales(rng);
        std::memcpy(base + 64 * dim + k * 4, &scale, 4);
      }
    }
  };
  const auto rows = static_cast<int64_t>(lens.size());
  c.shapes.set("M", rows);
  c.shapes.set("KV", longest);
  c.shapes.set("PAGES", num_pages);
  c.inputs = {
      {"q", DType::kF8E4M3, {"M", Dim(b.heads), Dim(dim)}, fill_normal(1, 100), true},
      {"weights", DType::kF32, {"M", Dim(b.heads)}, fill_normal(2, 1e-3), true},
      {"index_k_cache", DType::kU8, {"PAGES", Dim(64 * (dim + 4))}, fill_cache, true},
      {"context_lens", DType::kI32, {"M"}, fill_values(lens), true},
      {"block_table", DType::kI32, {Dim(static_cast<int64_t>(b.lens.size())), Dim(width)}, fill_values(table), true}};
  return c;
}

// Every visible logit is finite, every other one -inf.
void expect_visibility(const Batch& b, const OpResult& result) {
  const HostBuffer& logits = result.outputs.at(0);
  const int64_t columns = logits.dims[1];
  int64_t m = 0;
  for (const auto& rows : b.lens) {
    for (const int32_t len : rows) {
      for (int64_t s = 0; s < columns; ++s) {
        const float value = logits.as<float>()[m * columns + s];
        ASSERT_EQ(std::isfinite(value), s < len) << "row " << m << ", key " << s << ": " << value;
        ASSERT_TRUE(s < len || value == -INFINITY);
      }
      ++m;
    }
  }
}

TEST(IndexerScore, AgreesWithTheReferenceOnEveryBatch) {
  const Batch batches[] = {
      {1, 1, {{1}}},
      {32, 128, {{63, 64}, {65}}},
      {4, 64, {{1, 2, 3}, {700, 701}, {512}}},                // D = 64, several lengths
      {3, 40, {{1025, 1026, 1027, 1028}}},                    // heads and D that divide nothing
      {32, 128, {{300, 301, 302, 303, 304}, {181}, {1, 2}}},  // more rows than a block of 4
      {64, 128, {{257, 258, 259}}},                           // blocks of 2
      {2, 200, {{130}, {520}, {64}, {1}, {513}}},             // D over one scale block
      {130, 16, {{70, 71}}},                                  // more heads than one product takes
      {5, 32, {{}, {90, 91}, {}}},                            // requests without rows
  };
  for (const Batch& b : batches) {
    SCOPED_TRACE(testing::Message() << b.heads << " heads of " << b.dim << ", " << b.lens.size() << " requests");
    expect_visibility(b, check_op(score_case(b)));
  }
}

TEST(IndexerScore, HandlesALongContext) {
  const Batch b{1, 4, {{131072}, {70}}};
  OpCase c = score_case(b);
  for (OpInput& in : c.inputs) in.tracked = false;  // poisoning a megabyte for each of 257 tiles takes seconds
  const OpResult result = run_op_tiles(c, FinalizerMode::kFused, 1);
  EXPECT_EQ(result.num_tiles, 257U);
  expect_visibility(b, result);
  const OpResult ref = run_op_reference(c);
  const auto& got = result.outputs[0];
  EXPECT_LE(calc_diff(to_doubles(got.dtype, got.bytes.data(), got.count()),
                      to_doubles(got.dtype, ref.outputs[0].bytes.data(), got.count())),
            1e-10);
}

// One key, one row, by hand: negative dots vanish, weights may be negative, the key's scale comes last.
TEST(IndexerScore, ScoresByHand) {
  OpCase c = score_case({3, 2, {{1}}});
  const auto fp8 = [](const std::vector<float>& values) {
    return [values](HostBuffer& b) {
      for (size_t i = 0; i < values.size(); ++i) b.as<e4m3>()[i] = to_e4m3(values[i]);
    };
  };
  c.inputs[0].fill = fp8({1, 2, -3, 1, 0.5F, 0.25F});
  c.inputs[1].fill = [](HostBuffer& b) {
    b.as<float>()[0] = 3;
    b.as<float>()[1] = 100;
    b.as<float>()[2] = -2;
  };
  c.inputs[2].fill = [](HostBuffer& b) {
    for (int64_t page = 0; page < b.dims[0]; ++page) {
      uint8_t* base = b.as<uint8_t>() + page * b.dims[1];
      base[0] = to_e4m3(4).bits;
      base[1] = to_e4m3(2).bits;
      const float scale = 0.5F;
      std::memcpy(base + 64 * 2, &scale, 4);
    }
  };
  // dots: 1*4 + 2*2 = 8; -12 + 2 = -10 -> 0; 2 + 0.5 = 2.5. Sum: 3*8 - 2*2.5 = 19.
  EXPECT_EQ(check_op(c).outputs[0].as<float>()[0], 9.5F);
}

TEST(IndexerScore, TreatsBadLengthsAndPagesAsInvisible) {
  OpCase c = score_case({4, 16, {{100, 600}, {70}}});
  const OpResult good = run_op_tiles(c, FinalizerMode::kFused, 1);
  // Lengths beyond the plan's are clamped to it, negative ones to 0.
  c.inputs[3].fill = fill_values({-5, 2147483647, 70});
  const OpResult clamped = run_op_tiles(c, FinalizerMode::kFused, 1);
  const int64_t columns = good.outputs[0].dims[1];
  const auto* want = good.outputs[0].as<float>();
  const auto* got = clamped.outputs[0].as<float>();
  for (int64_t s = 0; s < columns; ++s) EXPECT_EQ(got[s], -INFINITY);
  EXPECT_EQ(std::memcmp(got + columns, want + columns, static_cast<size_t>(2 * columns) * sizeof(float)), 0);
  // Pages outside the cache hide their keys only.
  const auto fill_table = c.inputs[4].fill;
  c = score_case({4, 16, {{100, 600}, {70}}});
  c.inputs[4].fill = [fill_table](HostBuffer& b) {
    fill_table(b);
    b.as<int32_t>()[1] = 1 << 30;
    b.as<int32_t>()[3] = -1;
  };
  const OpResult holes = run_op_tiles(c, FinalizerMode::kFused, 1);
  for (int64_t s = 0; s < columns; ++s) {
    const bool hidden = s / 64 == 1 || s / 64 == 3;
    EXPECT_EQ(holes.outputs[0].as<float>()[columns + s], hidden ? -INFINITY : want[columns + s]) << s;
  }
}

OpGraph glm52_graph(int64_t heads) {
  OpGraph graph("g");
  const Tensor q = graph.runtime_arg("q", DType::kF8E4M3, {"M", heads, 128});
  const Tensor w = graph.runtime_arg("w", DType::kF32, {"M", heads});
  const Tensor cache = graph.state("cache", DType::kU8, {"PAGES", 64 * 132});
  const Tensor lens = graph.runtime_arg("lens", DType::kI32, {"M"});
  const Tensor table = graph.runtime_arg("table", DType::kI32, {"R", "TABLE"});
  graph.indexer_score(q, w, cache, lens, table, "E1");
  return graph;
}

ShapeEnv glm52_shapes(int32_t m = 16, int32_t kv = 8192) {
  ShapeEnv shapes;
  shapes.set("M", m);
  shapes.set("KV", kv);
  shapes.set("R", 2);
  shapes.set("TABLE", kv / 64);
  shapes.set("PAGES", 300);
  shapes.requests = {{m / 2, kv}, {m / 2, kv}};
  return shapes;
}

TEST(IndexerScore, CutsGlm52Into64Tiles) {
  const OpGraph graph = glm52_graph(32);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  const auto stages = lower_last_op(graph, glm52_shapes(), FinalizerMode::kFused);
  ASSERT_TRUE(stages);
  EXPECT_EQ((*stages)[0]->num_tiles, 64U);
  // DeepSeek's 64 heads: blocks of two rows.
  EXPECT_EQ((*lower_last_op(glm52_graph(64), glm52_shapes(), FinalizerMode::kFused))[0]->num_tiles, 128U);
}

// Tiles of 128 keys while there are no more than two a worker, of which an SM has two; then longer ones, up to 512:
// such a tile and the next one's q fit the pages of a worker.
TEST(IndexerScore, GpuPlansHaveLongerTilesForLongContexts) {
  const OpGraph graph = glm52_graph(32);
  const auto tiles = [&](int32_t m, int32_t kv) {
    return (*lower_last_op(graph, glm52_shapes(m, kv), FinalizerMode::kTasks, 132))[0]->num_tiles;
  };
  EXPECT_EQ(tiles(16, 8192), 4U * 64U);
  EXPECT_EQ(tiles(16, 16896), 4U * 132U);
  EXPECT_EQ(tiles(16, 16960), 4U * 67U);  // 256 keys: the last tile has 64
  EXPECT_EQ(tiles(16, 131072), 4U * 256U);
  EXPECT_EQ(tiles(64, 8192), 16U * 32U);
  EXPECT_EQ(tiles(256, 131072), 64U * 256U);
  EXPECT_EQ(tiles(2, 131072), 2U * 256U);  // 512 keys; of 384 there would be 2 * 342
}

TEST(IndexerScore, TilesOf256KeysHaveTheBitsOfThoseOf512) {
  std::vector<int32_t> lens;
  for (int32_t i = 0; i < 120; ++i) lens.push_back(550 + i % 91);
  OpCase c = score_case({128, 1, {lens, {5}}});  // each row a block
  for (OpInput& in : c.inputs) in.tracked = false;
  const OpResult cpu = run_op_tiles(c, FinalizerMode::kTasks, 1);
  c.num_sms = 100;
  const OpResult gpu = run_op_tiles(c, FinalizerMode::kTasks, 1);
  EXPECT_EQ(cpu.num_tiles, 120U * 2U + 1U);
  EXPECT_EQ(gpu.num_tiles, 120U * 3U + 1U);
  EXPECT_EQ(std::memcmp(cpu.outputs[0].bytes.data(), gpu.outputs[0].bytes.data(), cpu.outputs[0].bytes.size()), 0);
}

TEST(IndexerScore, LoweringRefusesRequestsThatDoNotFit) {
  const OpGraph graph = glm52_graph(32);
  const auto error_of = [&](const std::function<void(ShapeEnv&)>& change) {
    ShapeEnv shapes = glm52_shapes();
    change(shapes);
    const auto stages = lower_last_op(graph, shapes, FinalizerMode::kFused);
    return stages ? std::string() : stages.error().to_string();
  };
  EXPECT_EQ(error_of([](ShapeEnv&) {}), "");
  EXPECT_EQ(error_of([](ShapeEnv& s) { s.requests[0].num_rows = 7; }),
            "op 'E1': the requests have 15 rows together, but M is 16");
  EXPECT_EQ(error_of([](ShapeEnv& s) { s.requests[1].kv_len = 8193; }),
            "op 'E1': request 1 has length 8193, but its block table and logits reach 8192");
  EXPECT_EQ(error_of([](ShapeEnv& s) { s.set("R", 1); }), "op 'E1': 2 requests, but tensor 'table' has 1 rows");
}

TEST(IndexerScore, CheckInstructionRefusesWhatWouldLeaveTheOperands) {
  const OpFamily& family = *find_op_family("indexer_score");
  const std::vector<int64_t> q{16, 32, 128}, w{16, 32}, cache{300, 8448}, lens{16}, table{2, 128}, logits{16, 8192};
  const std::vector<uint32_t> good_spec{32, 128, 300, 128, 8192};
  const std::vector<uint32_t> good{1, 12, 4, 7680, 8192, 1};
  const auto accepts = [&](const std::vector<uint32_t>& spec, const std::vector<uint32_t>& payload) {
    std::vector<OperandType> operands(abi::kOperandSlots);
    operands[0] = {true, DType::kF8E4M3, q};
    operands[1] = {true, DType::kF32, w};
    operands[2] = {true, DType::kU8, cache};
    operands[3] = {true, DType::kI32, lens};
    operands[4] = {true, DType::kI32, table};
    operands[5] = {true, DType::kF32, logits};
    abi::Instruction instruction{};
    instruction.opcode = family.opcodes()[0].opcode;
    instruction.counts = abi::make_counts(0, 0, static_cast<uint32_t>(payload.size()));
    std::copy(payload.begin(), payload.end(), instruction.payload);
    return family.check_instruction({instruction, spec, operands}).has_value();
  };
  EXPECT_TRUE(accepts(good_spec, good));
  EXPECT_FALSE(accepts({32, 128, 300, 128}, good));
  EXPECT_FALSE(accepts(good_spec, {1, 12, 4, 7680, 8192}));
  for (size_t word = 0; word < good_spec.size(); ++word) {
    for (const uint32_t bad : {0U, good_spec[word] + 1, 0x80000000U, 0xffffffffU}) {
      auto spec = good_spec;
      spec[word] = bad;
      EXPECT_FALSE(accepts(spec, good)) << "spec word " << word << " = " << bad;
    }
  }
  const std::vector<std::pair<size_t, uint32_t>> changes{
      {0, 2},    {0, 0xffffffffU}, {1, 13},   {1, 0xffffffffU}, {2, 5},           {2, 0}, {2, 0xffffffffU},
      {3, 7681}, {3, 8256},        {4, 8193}, {4, 7679},        {4, 0xffffffffU}, {5, 2}};
  for (const auto& [word, bad] : changes) {
    auto payload = good;
    payload[word] = bad;
    EXPECT_FALSE(accepts(good_spec, payload)) << "payload word " << word << " = " << bad;
  }
}

TEST(IndexerScore, MegaOpTakesTilesThatFitItsPages) {
  const MegaOpInfo& op = *find_mega_op(find_op_family("indexer_score")->opcodes()[0].opcode);
  const std::vector<int64_t> q{64, 32, 128};
  std::vector<OperandType> operands(abi::kOperandSlots);
  operands[0] = {true, DType::kF8E4M3, q};
  abi::Instruction instruction{};
  const auto check = [&](const std::vector<uint32_t>& spec, const std::vector<uint32_t>& payload) {
    std::copy(payload.begin(), payload.end(), instruction.payload);
    return InstructionCheck{instruction, spec, operands};
  };
  const std::vector<uint32_t> spec{32, 128, 300, 128, 8192};
  for (const uint32_t heads : {8U, 16U, 32U, 64U, 128U})
    EXPECT_TRUE(op.check(check({heads, 128, 300, 128, 8192}, {0, 0, 1, 0, 512, 0}))) << heads;
  for (const uint32_t heads : {1U, 4U, 24U, 256U})
    EXPECT_FALSE(op.check(check({heads, 128, 300, 128, 8192}, {0, 0, 1, 0, 512, 0}))) << heads;
  EXPECT_FALSE(op.check(check({32, 64, 300, 128, 8192}, {0, 0, 1, 0, 512, 0})));
  EXPECT_TRUE(op.check(check(spec, {0, 0, 4, 64, 64 + 640, 0})));
  EXPECT_FALSE(op.check(check(spec, {0, 0, 4, 64, 64 + 641, 0})));
  EXPECT_FALSE(op.check(check(spec, {0, 0, 5, 0, 512, 0})));

  EXPECT_EQ(op.num_pages(check(spec, {0, 0, 4, 0, 0, 1})), 1U);
  EXPECT_EQ(op.num_pages(check(spec, {0, 0, 4, 0, 64, 1})), 2U);
  EXPECT_EQ(op.num_pages(check(spec, {0, 0, 4, 0, 128, 1})), 2U);
  EXPECT_EQ(op.num_pages(check(spec, {0, 0, 4, 512, 1000, 1})), 5U);
  const std::vector<MegaOpMap> maps = op.maps(spec, operands);
  ASSERT_EQ(maps.size(), 2U);
  EXPECT_EQ(maps[0].spec.dims[1], 64U * 32U);
  EXPECT_EQ(maps[1].spec.dims[2], 300U);
  EXPECT_EQ(maps[1].spec.strides[1], 8448U);
}

}  // namespace
}  // namespace megartp::test::indexer_score_test
