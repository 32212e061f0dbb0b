#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/float8.h"
#include "ops/indexer_q/indexer_q_abi.h"
#include "support/lower_op.h"
#include "support/op_harness.h"

namespace megartp::test::indexer_q_test {
namespace {

struct Sizes {
  int64_t m, q_lora, heads, dim, rope, gate_splits;
  Attrs attrs;
};

constexpr int64_t kPositions = 50;

OpCase indexer_q_case(const Sizes& s) {
  const int64_t blocks = (s.q_lora + 127) / 128;
  const int64_t width = s.heads * s.dim;
  OpCase c;
  c.kind = "indexer_q";
  c.attrs = s.attrs;
  c.attrs.set("heads", s.heads);
  c.attrs.set("score_scale", 1.0 / std::sqrt(static_cast<double>(width)));
  c.shapes.set("M", s.m);
  c.inputs = {{"x", DType::kF8E4M3, {"M", Dim(s.q_lora)}, fill_normal(1, 100), true},
              {"x_scale", DType::kF32, {"M", Dim(blocks)}, fill_uniform(2, 0.005, 0.02), true},
              {"wq_b", DType::kF8E4M3, {Dim(width), Dim(s.q_lora)}, fill_normal(3, 60)},
              {"wq_b_scale", DType::kF32, {Dim((width + 127) / 128), Dim(blocks)}, fill_uniform(4, 1e-4, 3e-4)},
              {"gate_partials", DType::kF32, {Dim(s.gate_splits), "M", Dim(s.heads)}, fill_normal(5), true},
              {"positions", DType::kI32, {"M"}, fill_int(6, 0, kPositions), true},
              {"cos_sin", DType::kF32, {Dim(kPositions), Dim(s.rope)}, fill_uniform(7, -1, 1), true}};
  return c;
}

TEST(IndexerQ, AgreesWithTheReferenceOnEveryShapeAndOption) {
  const Sizes sizes[] = {
      {1, 1, 1, 2, 2, 1, {}},
      {16, 512, 3, 128, 64, 7, {}},                     // GLM-5.2's heads
      {3, 200, 5, 64, 32, 2, {{"interleave", false}}},  // D = 64: two heads in a scale row; ragged K
      {5, 640, 2, 128, 64, 3, {{"hadamard", true}, {"split_k", int64_t{3}}}},     // uneven slices
      {17, 384, 2, 40, 40, 1, {{"pow2_scale", false}, {"split_k", int64_t{1}}}},  // heads cross scale rows; ragged M
                                                                                  // tile
      {70, 130, 1, 16, 4, 2, {}},
      {2, 300, 2, 200, 64, 2, {}},  // heads wider than one GEMM block
      {4, 256, 4, 32, 8, 4, {{"hadamard", true}, {"interleave", false}, {"pow2_scale", false}}},
  };
  for (const Sizes& s : sizes) {
    SCOPED_TRACE(testing::Message() << "m " << s.m << ", q_lora " << s.q_lora << ", heads " << s.heads << " of "
                                    << s.dim);
    check_op(indexer_q_case(s));
  }
}

TEST(IndexerQ, FoldsGateAndScaleIntoTheWeights) {
  const Sizes s{6, 256, 4, 64, 32, 5, {}};
  const OpCase c = indexer_q_case(s);
  const OpResult r = check_op(c);
  HostBuffer partials = r.inputs[4];
  for (size_t i = 0; i < r.outputs[1].count(); ++i) {
    float gate = 0;
    for (int64_t k = 0; k < s.gate_splits; ++k)
      gate += partials.as<float>()[static_cast<size_t>(k) * r.outputs[1].count() + i];
    const float scale = r.outputs[1].as<float>()[i];
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << "the scale is a power of two";
    EXPECT_EQ(r.outputs[3].as<float>()[i], gate);
    EXPECT_EQ(r.outputs[2].as<float>()[i], gate * scale / 16.0F);
  }
}

TEST(IndexerQ, LeavesOutRowsWithAPositionOutsideTheTable) {
  const Sizes s{3, 256, 2, 64, 32, 2, {}};
  OpCase c = indexer_q_case(s);
  const OpResult want = run_op_tiles(c, FinalizerMode::kFused, 1);
  const auto positions = c.inputs[5].fill;
  c.inputs[5].fill = [positions](HostBuffer& b) {
    positions(b);
    b.as<int32_t>()[0] = kPositions;
    b.as<int32_t>()[2] = -1;
  };
  const OpResult got = run_op_tiles(c, FinalizerMode::kTasks, 1);
  const auto row_bytes = static_cast<size_t>(s.heads * s.dim);
  for (size_t row = 0; row < 3; ++row) {
    const bool same = std::equal(got.outputs[0].bytes.begin() + static_cast<ptrdiff_t>(row * row_bytes),
                                 got.outputs[0].bytes.begin() + static_cast<ptrdiff_t>((row + 1) * row_bytes),
                                 want.outputs[0].bytes.begin() + static_cast<ptrdiff_t>(row * row_bytes));
    EXPECT_EQ(same, row == 1) << "row " << row;
  }
}

OpGraph glm52_graph(Attrs attrs, int64_t width = 4096, const Shape& gate = {48, "M", 32},
                    const Shape& cos_sin = {1024, 64}) {
  OpGraph graph("g");
  const Tensor x = graph.runtime_arg("x", DType::kF8E4M3, {"M", 2048});
  const Tensor x_scale = graph.runtime_arg("x_scale", DType::kF32, {"M", 16});
  const Tensor w = graph.bound_weight("wq_b", DType::kF8E4M3, {Dim(width), 2048});
  const Tensor w_scale = graph.bound_weight("wq_b_scale", DType::kF32, {Dim((width + 127) / 128), 16});
  const Tensor partials = graph.runtime_arg("gate_partials", DType::kF32, gate);
  const Tensor positions = graph.runtime_arg("positions", DType::kI32, {"M"});
  const Tensor table = graph.runtime_arg("cos_sin", DType::kF32, cos_sin);
  graph.indexer_q({x, x_scale}, {w, w_scale}, partials, {positions, table, {}}, std::move(attrs), "D1");
  return graph;
}

const Attrs& glm52_attrs() {
  static const Attrs attrs{{"heads", int64_t{32}}, {"score_scale", 1.0 / 64}};
  return attrs;
}

TEST(IndexerQ, CutsGlm52Into128TilesAnd32Finalizers) {
  const OpGraph graph = glm52_graph(glm52_attrs());
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  ShapeEnv shapes;
  shapes.set("M", 16);
  const auto fused = lower_last_op(graph, shapes, FinalizerMode::kFused);
  ASSERT_TRUE(fused);
  ASSERT_EQ(fused->size(), 1U);
  EXPECT_EQ((*fused)[0]->num_tiles, 128U);
  EXPECT_EQ((*fused)[0]->num_join_groups, 32U);
  EXPECT_EQ((*fused)[0]->num_final_tiles, 32U);
  const auto tasks = lower_last_op(graph, shapes, FinalizerMode::kTasks);
  ASSERT_TRUE(tasks);
  ASSERT_EQ(tasks->size(), 2U);
  EXPECT_EQ((*tasks)[0]->num_tiles, 128U);
  EXPECT_EQ((*tasks)[1]->num_tiles, 32U);
}

TEST(IndexerQ, EveryTileOfAFusedGroupReadsTheGate) {
  const OpGraph graph = glm52_graph(glm52_attrs());
  ShapeEnv shapes;
  shapes.set("M", 33);  // two M tiles
  const auto stages = lower_last_op(graph, shapes, FinalizerMode::kFused);
  ASSERT_TRUE(stages);
  const Stage& stage = *(*stages)[0];
  const TensorId gate = graph.find_tensor("gate_partials").id;
  for (uint32_t i = 0; i < stage.num_tiles; ++i) {
    TileDesc tile;
    stage.tile(i, tile);
    FinalDesc final_tile;
    stage.final_tile(tile.join_group, final_tile);
    EXPECT_EQ(final_tile.join_group, tile.join_group);
    const auto reads_gate = [&](const Access& a) { return a.tensor == gate; };
    const auto of_tile = std::find_if(tile.reads.begin(), tile.reads.end(), reads_gate);
    const auto of_final = std::find_if(final_tile.reads.begin(), final_tile.reads.end(), reads_gate);
    ASSERT_NE(of_tile, tile.reads.end());
    ASSERT_NE(of_final, final_tile.reads.end());
    EXPECT_EQ(of_tile->box, of_final->box);
  }
}

TEST(IndexerQ, ErrorsNameTheProblem) {
  const auto error_of = [](const OpGraph& graph) {
    return graph.status() ? std::string() : graph.status().error().to_string();
  };
  EXPECT_THAT(error_of(glm52_graph({{"heads", int64_t{32}}})),
              testing::HasSubstr("op 'D1': attribute 'score_scale' is required"));
  EXPECT_THAT(error_of(glm52_graph({{"score_scale", 0.1}})), testing::HasSubstr("attribute 'heads' is required"));
  EXPECT_THAT(error_of(glm52_graph({{"heads", int64_t{0}}, {"score_scale", 0.1}})), testing::HasSubstr("'heads' is 0"));
  EXPECT_THAT(error_of(glm52_graph(glm52_attrs(), 4095)), testing::HasSubstr("'wq_b' has shape [4095, 2048]"));
  EXPECT_THAT(error_of(glm52_graph(glm52_attrs(), 4096, {48, "M", 31})),
              testing::HasSubstr("'gate_partials' has shape [48, M, 31]"));
  EXPECT_THAT(error_of(glm52_graph(glm52_attrs(), 4096, {48, "M", 32}, {1024, 130})),
              testing::HasSubstr("'cos_sin' has shape"));
  Attrs hadamard = glm52_attrs();
  hadamard.set("hadamard", true);
  EXPECT_THAT(error_of(glm52_graph(hadamard, 3072)), testing::HasSubstr("power of two"));
  EXPECT_EQ(error_of(glm52_graph(glm52_attrs(), 3072)), "");
}

TEST(IndexerQ, CheckInstructionRefusesWhatWouldLeaveTheOperands) {
  const OpFamily& family = *find_op_family("indexer_q");
  const uint32_t fused = family.opcodes()[0].opcode;
  const uint32_t gemm = family.opcodes()[1].opcode;
  const uint32_t finalize = family.opcodes()[2].opcode;
  const std::vector<std::pair<DType, std::vector<int64_t>>> tensors{
      {DType::kF8E4M3, {16, 512}},   {DType::kF32, {16, 4}}, {DType::kF8E4M3, {96, 512}}, {DType::kF32, {1, 4}},
      {DType::kF32, {5, 16, 3}},     {DType::kI32, {16}},    {DType::kF32, {1024, 16}},   {DType::kF32, {2, 16, 96}},
      {DType::kF8E4M3, {16, 3, 32}}, {DType::kF32, {16, 3}}, {DType::kF32, {16, 3}},      {DType::kF32, {16, 3}}};
  ops::IndexerQSpec spec{};
  spec.gemm = {512, 2, {96, 0}};
  spec.heads = 3;
  spec.head_dim = 32;
  spec.rope = 16;
  spec.num_positions = 1024;
  spec.gate_splits = 5;
  spec.score_scale = 0.1F;
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
  const std::vector<uint32_t> tile{0, 16, 64, 32, 1, 16};
  const std::vector<uint32_t> final_tile{3, 13, 2, 16};
  EXPECT_TRUE(accepts(words, fused, tile));
  EXPECT_TRUE(accepts(words, gemm, tile));
  EXPECT_TRUE(accepts(words, finalize, final_tile));
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_FALSE(accepts(words, fused, tile, i)) << i;
  EXPECT_FALSE(accepts(words, finalize, tile));
  EXPECT_FALSE(accepts(words, fused, final_tile));
  const size_t score_scale_word = offsetof(ops::IndexerQSpec, score_scale) / 4;
  for (size_t word = 0; word < words.size(); ++word) {
    if (word == score_scale_word) continue;  // any number is safe
    for (const uint32_t bad : {words[word] + 2, 0x80000000U, 0xffffffffU}) {
      auto changed = words;
      changed[word] = bad;
      EXPECT_FALSE(accepts(changed, fused, tile)) << "spec word " << word << " = " << bad;
    }
  }
  // Two heads at once, or half of one, have no finalizer.
  EXPECT_FALSE(accepts(words, fused, {0, 16, 32, 64, 1, 16}));
  EXPECT_FALSE(accepts(words, fused, {0, 16, 16, 32, 1, 16}));
  for (const auto& bad : {std::vector<uint32_t>{4, 13, 2, 16},
                          {0xffffffffU, 1, 2, 16},
                          {0, 0xffffffffU, 2, 16},
                          {0, 16, 3, 16},
                          {0, 17, 2, 17},
                          {0, 8, 2, 15}})
    EXPECT_FALSE(accepts(words, finalize, bad)) << bad[0] << ' ' << bad[1] << ' ' << bad[2];
}

}  // namespace
}  // namespace megartp::test::indexer_q_test
