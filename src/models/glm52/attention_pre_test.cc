// The recorded graph: op order, names, shapes, attributes, IndexShare, several layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/glm52/glm52.h"

namespace megartp::glm52 {
namespace {

using testing::ElementsAre;

std::vector<std::string> op_names(const OpGraph& graph) {
  std::vector<std::string> names;
  for (const OpInfo& op : graph.ops()) names.push_back(op.name);
  return names;
}
std::string described(const OpGraph& graph, std::string_view name) {
  const Tensor t = graph.find_tensor(name);
  if (!t.valid()) return "missing";
  const TensorInfo& info = graph.tensor(t.id);
  return std::string(to_string(info.storage)) + " " + std::string(to_string(info.dtype)) + " " + to_string(info.shape);
}
const OpInfo& op_of(const OpGraph& graph, std::string_view name) {
  return *std::find_if(graph.ops().begin(), graph.ops().end(), [&](const OpInfo& op) { return op.name == name; });
}
std::vector<std::string> output_names(const OpGraph& graph) {
  std::vector<std::string> names;
  for (const TensorId id : graph.outputs()) names.push_back(graph.tensor(id).name);
  return names;
}

TEST(AttentionPreGraphTest, FullLayerOfGlm52) {
  const Config config;
  const OpGraph graph = attention_pre_graph(config, {}, 6);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  EXPECT_THAT(op_names(graph), ElementsAre("A0", "B0", "C0", "B1", "D1", "D0", "D2", "E1"));
  const std::map<std::string, std::string> kTensors{
      {"x", "runtime_arg BF16 [M, 6144]"},
      {"residual", "runtime_arg BF16 [M, 6144]"},
      {"positions", "runtime_arg I32 [M]"},
      {"context_lens", "runtime_arg I32 [M]"},
      {"slot_mapping", "runtime_arg I32 [M]"},
      {"block_table", "runtime_arg I32 [R, TABLE]"},
      {"cos_sin", "runtime_arg F32 [POS, 64]"},
      {"index_k_cache", "state U8 [PAGES, 8448]"},
      {"mla_kv_cache", "state U8 [PAGES, 41984]"},
      {"residual_out", "output BF16 [M, 6144]"},
      {"norm", "activation BF16 [M, 6144]"},
      {"hidden_q", "activation F8_E4M3 [M, 6144]"},
      {"hidden_scale", "activation F32 [M, 48]"},
      {"q_resid", "activation F8_E4M3 [M, 2048]"},
      {"q_resid_scale", "activation F32 [M, 16]"},
      {"kv", "activation BF16 [M, 576]"},
      {"gate_partials", "activation F32 [48, M, 32]"},
      {"index_q", "activation F8_E4M3 [M, 32, 128]"},
      {"index_q_scale", "activation F32 [M, 32]"},
      {"head_weights", "activation F32 [M, 32]"},
      {"gate", "activation F32 [M, 32]"},
      {"q_nope", "activation BF16 [M, 64, 192]"},
      {"q_out", "output BF16 [M, 64, 576]"},
      {"logits", "output F32 [M, round_up(KV, 256)]"},
      {"model.layers.6.self_attn.kv_b_proj.weight", "weight F8_E4M3 [28672, 512]"},
      {"model.layers.6.self_attn.indexer.k_norm.bias", "weight BF16 [128]"},
  };
  for (const auto& [name, text] : kTensors) EXPECT_EQ(described(graph, name), text) << name;
  EXPECT_THAT(output_names(graph), ElementsAre("residual_out", "q_out", "logits", "mla_kv_cache", "index_k_cache"));
  EXPECT_EQ(op_of(graph, "D1").attrs.get_double("score_scale", 0), 1.0 / 64);
  EXPECT_EQ(op_of(graph, "D1").attrs.get_bool("interleave", false), true);
  EXPECT_EQ(op_of(graph, "A0").attrs.get_double("eps", 0), 1e-5);
  EXPECT_EQ(op_of(graph, "B0").attrs.get_double("eps", 0), 1e-5);
  EXPECT_EQ(op_of(graph, "B1").attrs.get_double("eps", 0), 1e-6);
  EXPECT_EQ(op_of(graph, "D2").attrs.get_int("v", 0), 256);
}

TEST(AttentionPreGraphTest, WeightsAreThoseOfTheLayer) {
  const Config config;
  for (const int64_t layer : {6, 7, 78}) {
    const OpGraph graph = attention_pre_graph(config, {}, layer);
    ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
    std::map<std::string, std::string> bound;
    for (const TensorInfo& t : graph.tensors())
      if (t.storage == Storage::kWeight) bound[t.name] = std::string(to_string(t.dtype)) + to_string(t.shape);
    std::map<std::string, std::string> expected;
    for (const WeightSpec& w : layer_weights(config, layer))
      expected[w.graph_tensor] = std::string(to_string(w.dtype)) + to_string(w.dims);
    EXPECT_EQ(bound, expected);
  }
}

TEST(AttentionPreGraphTest, LayerWithoutIndexer) {
  const OpGraph graph = attention_pre_graph({}, {}, 7);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  EXPECT_THAT(op_names(graph), ElementsAre("A0", "B0", "D0", "D2"));
  EXPECT_THAT(output_names(graph), ElementsAre("residual_out", "q_out", "mla_kv_cache"));
  for (const char* name : {"logits", "index_k_cache", "context_lens", "block_table"})
    EXPECT_FALSE(graph.find_tensor(name).valid()) << name;
}

TEST(AttentionPreGraphTest, OptionsReachTheOps) {
  Options options;
  options.hadamard = true;
  options.act_pow2_scale = true;
  options.index_q_pow2_scale = false;
  options.index_k_pow2_scale = true;
  options.mla_pow2_scale = false;
  const OpGraph graph = attention_pre_graph({}, options, 6);
  ASSERT_TRUE(graph.status());
  EXPECT_TRUE(op_of(graph, "A0").attrs.get_bool("pow2_scale", false));
  EXPECT_TRUE(op_of(graph, "B0").attrs.get_bool("pow2_scale", false));
  EXPECT_FALSE(op_of(graph, "B0").attrs.get_bool("mla_pow2_scale", true));
  EXPECT_TRUE(op_of(graph, "B1").attrs.get_bool("hadamard", false));
  EXPECT_TRUE(op_of(graph, "B1").attrs.get_bool("pow2_scale", false));
  EXPECT_TRUE(op_of(graph, "D1").attrs.get_bool("hadamard", false));
  EXPECT_FALSE(op_of(graph, "D1").attrs.get_bool("pow2_scale", true));
}

TEST(AttentionPreGraphTest, DeepSeekV32) {
  const OpGraph graph = attention_pre_graph(deepseek_v3_2_config(), {}, 3);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  EXPECT_EQ(graph.ops().size(), 8U);
  EXPECT_FALSE(op_of(graph, "B1").attrs.get_bool("interleave", true));
  EXPECT_FALSE(op_of(graph, "D1").attrs.get_bool("interleave", true));
  EXPECT_EQ(op_of(graph, "A0").attrs.get_double("eps", 0), 1e-6);
  EXPECT_EQ(described(graph, "q_nope"), "activation BF16 [M, 128, 128]");
  EXPECT_EQ(described(graph, "model.layers.3.self_attn.kv_a_proj_with_mqa.weight_scale_inv"), "weight F32 [5, 56]");
}

TEST(AttentionPreGraphTest, RaggedSizes) {
  Config config;
  config.hidden_size = 200;
  config.num_attention_heads = 3;
  config.q_lora_rank = 72;
  config.kv_lora_rank = 40;
  config.qk_nope_head_dim = 6;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 5;
  config.index_n_heads = 3;
  config.index_head_dim = 24;
  ASSERT_TRUE(check_config(config));
  const OpGraph graph = attention_pre_graph(config, {}, 0);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  EXPECT_EQ(described(graph, "q_out"), "output BF16 [M, 3, 48]");
}

TEST(AttentionPreGraphTest, SeveralLayersShareTheBatchAndChainTheResidual) {
  const OpGraph graph = attention_pre_graph({}, {}, 5, 3);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  EXPECT_THAT(op_names(graph), ElementsAre("L5.A0", "L5.B0", "L5.D0", "L5.D2",                                      //
                                           "L6.A0", "L6.B0", "L6.C0", "L6.B1", "L6.D1", "L6.D0", "L6.D2", "L6.E1",  //
                                           "L7.A0", "L7.B0", "L7.D0", "L7.D2"));
  EXPECT_THAT(output_names(graph),
              ElementsAre("L7.residual_out", "L5.q_out", "L5.mla_kv_cache", "L6.q_out", "L6.logits", "L6.mla_kv_cache",
                          "L6.index_k_cache", "L7.q_out", "L7.mla_kv_cache"));
  std::set<std::string> args;
  for (const TensorInfo& t : graph.tensors())
    if (t.storage == Storage::kRuntimeArg) args.insert(t.name);
  EXPECT_EQ(args, (std::set<std::string>{"L5.x", "L5.residual", "L6.x", "L7.x", "positions", "context_lens",
                                         "slot_mapping", "block_table", "cos_sin"}));
  EXPECT_EQ(op_of(graph, "L6.A0").inputs[1], graph.find_tensor("L5.residual_out").id);
  EXPECT_EQ(described(graph, "L5.residual_out"), "activation BF16 [M, 6144]");
  EXPECT_TRUE(graph.find_tensor("model.layers.6.self_attn.indexer.wk.weight").valid());
}

TEST(AttentionPreGraphTest, WholeModel) {
  const OpGraph graph = attention_pre_graph({}, {}, 0, 78);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  EXPECT_EQ(graph.ops().size(), 21U * 8U + 57U * 4U);
}

}  // namespace
}  // namespace megartp::glm52
