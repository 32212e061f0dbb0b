#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/glm52/glm52.h"

namespace megartp::glm52 {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json small_config() {
  return json::parse(R"({"model_type":"glm_moe_dsa","hidden_size":512,"num_hidden_layers":8,"num_attention_heads":4,
    "q_lora_rank":256,"kv_lora_rank":128,"qk_nope_head_dim":192,"qk_rope_head_dim":64,"v_head_dim":256,"index_n_heads":4,
    "index_head_dim":128,"rms_norm_eps":1e-5,"rope_parameters":{"rope_type":"default","rope_theta":8000000.0}})");
}
json deepseek_config() {
  return json::parse(
      R"({"model_type":"deepseek_v32","hidden_size":7168,"num_hidden_layers":61,"num_attention_heads":128,
    "q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"index_n_heads":64,
    "index_head_dim":128,"rope_theta":10000,"rope_scaling":{"type":"yarn","factor":40,"beta_fast":32,"beta_slow":1,
    "mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":4096},"quantization_config":{"quant_method":"fp8",
    "fmt":"e4m3","activation_scheme":"dynamic","scale_fmt":"ue8m0","weight_block_size":[128,128]}})");
}

TEST(ConfigTest, ReadsTheGoldenConfig) {
  const auto config = load_config(std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/tiny_a_config.json");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->hidden_size, 512);
  EXPECT_EQ(config->num_attention_heads, 4);
  EXPECT_EQ(config->rope_theta, 8e6);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_TRUE(config->indexer_rope_interleave);
  EXPECT_TRUE(layer_has_indexer(*config, 6));
}

TEST(ConfigTest, DeepSeekDiffersInIndexerRopeEpsAndYarn) {
  const auto config = parse_config(deepseek_config().dump());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(*config, deepseek_v3_2_config());
  EXPECT_FALSE(config->indexer_rope_interleave);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->yarn_factor, 40);
  for (int64_t layer = 0; layer <= 61; ++layer) EXPECT_TRUE(layer_has_indexer(*config, layer)) << layer;
}

TEST(ConfigTest, YarnScaleIsOneOnlyWhenBothFactorsAreGiven) {
  json file = deepseek_config();
  file["rope_scaling"].erase("mscale_all_dim");
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config);
  EXPECT_EQ(config->yarn_mscale, 1);
  EXPECT_EQ(config->yarn_mscale_all_dim, 0);
}

TEST(ConfigTest, RoundTripsThroughJson) {
  Config patterned;
  patterned.num_hidden_layers = 4;
  patterned.indexer_pattern = "FSSF";
  Config yarn = deepseek_v3_2_config();
  yarn.yarn_mscale_all_dim = 0;
  for (const Config& config : {glm_5_2_config(), deepseek_v3_2_config(), patterned, yarn}) {
    const auto again = parse_config(config_to_json(config));
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(*again, config);
  }
}

TEST(ConfigTest, FullIndexerLayersOfGlm52) {
  const Config config;
  std::vector<int64_t> full;
  for (int64_t layer = 0; layer < 78; ++layer)
    if (layer_has_indexer(config, layer)) full.push_back(layer);
  EXPECT_THAT(full,
              testing::ElementsAre(0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74));
  EXPECT_TRUE(layer_has_indexer(config, 78));  // MTP
}

TEST(ConfigTest, IndexerLayersFromLists) {
  json file = small_config();
  file["index_topk_freq"] = 4;
  file["index_skip_topk_offset"] = 3;
  file["index_topk_pattern"] = "FFFFSSSS";
  auto config = parse_config(file.dump());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_TRUE(layer_has_indexer(*config, 3));
  EXPECT_FALSE(layer_has_indexer(*config, 6));
  EXPECT_TRUE(layer_has_indexer(*config, 8));
  file["indexer_types"] = {"full", "shared", "full", "shared", "full", "shared", "full", "shared"};
  config = parse_config(file.dump());
  ASSERT_TRUE(config);
  EXPECT_FALSE(layer_has_indexer(*config, 3));
  EXPECT_TRUE(layer_has_indexer(*config, 6));
  file["index_topk_pattern"] = nullptr;
  file["indexer_types"] = nullptr;
  config = parse_config(file.dump());
  ASSERT_TRUE(config);
  EXPECT_FALSE(layer_has_indexer(*config, 3));
  EXPECT_TRUE(layer_has_indexer(*config, 6));
}

struct BadField {
  const char* pointer;  // JSON pointer of the field to change
  json value;           // discarded: erase the field
  const char* message;
  ErrorCode code = ErrorCode::kParse;
};

TEST(ConfigTest, ErrorsNameTheField) {
  const json erase(json::value_t::discarded);
  const BadField kCases[] = {
      {"/model_type", erase, "config field 'model_type' is missing"},
      {"/model_type", "llama", "config field 'model_type' is 'llama'; supported:", ErrorCode::kUnsupported},
      {"/model_type", 3, "config field 'model_type' is 3, expected a string"},
      {"/hidden_size", erase, "config field 'hidden_size' is missing"},
      {"/hidden_size", nullptr, "config field 'hidden_size' is missing"},
      {"/hidden_size", "512", "config field 'hidden_size' is \"512\", expected a whole number"},
      {"/hidden_size", 512.5, "config field 'hidden_size' is 512.5, expected a whole number"},
      {"/hidden_size", 0, "config field 'hidden_size' is 0, expected 1 to"},
      {"/hidden_size", -512, "config field 'hidden_size' is -512, expected 1 to"},
      {"/hidden_size", 18446744073709551615U, "config field 'hidden_size' is 18446744073709551615, expected a smaller"},
      {"/hidden_size", int64_t{1} << 40, "config field 'hidden_size' is 1099511627776, expected 1 to"},
      {"/q_lora_rank", nullptr, "config field 'q_lora_rank' is missing"},
      {"/num_attention_heads", json::array({1}), "config field 'num_attention_heads' is [1], expected a whole number"},
      {"/num_attention_heads", 1 << 20,
       "num_attention_heads * (qk_nope_head_dim + v_head_dim) is 469762048, at most 268435456 fit"},
      {"/index_n_heads", true, "config field 'index_n_heads' is true, expected a whole number"},
      {"/qk_rope_head_dim", 63, "config field 'qk_rope_head_dim' is 63, expected an even number"},
      {"/qk_nope_head_dim", 191, "config field 'qk_nope_head_dim' is 191, expected an even number"},
      {"/index_head_dim", 32, "config field 'index_head_dim' is 32, smaller than qk_rope_head_dim = 64"},
      {"/index_head_dim", 8192, "config field 'index_head_dim' is 8192, at most 4096 fit"},
      {"/rms_norm_eps", 0.0, "config field 'rms_norm_eps' is 0, expected a positive number"},
      {"/rms_norm_eps", "x", "config field 'rms_norm_eps' is \"x\", expected a number"},
      {"/rope_parameters/rope_theta", erase, "config field 'rope_theta' is missing"},
      {"/rope_parameters/rope_theta", -1.0, "config field 'rope_theta' is -1, expected a positive number"},
      {"/rope_parameters/rope_theta", "x", "config field 'rope_parameters.rope_theta' is \"x\", expected a number"},
      {"/rope_parameters", 7, "config field 'rope_parameters' is 7, expected an object"},
      {"/rope_parameters/rope_type", "llama3",
       "config field 'rope_parameters.rope_type' is 'llama3'; supported: default, yarn", ErrorCode::kUnsupported},
      {"/rope_parameters/rope_type", "yarn", "config field 'rope_parameters.factor' is missing"},
      {"/rope_interleave", "yes", "config field 'rope_interleave' is \"yes\", expected true or false"},
      {"/rope_interleave", false, "config field 'rope_interleave' is false", ErrorCode::kUnsupported},
      {"/index_topk_freq", 0, "config field 'index_topk_freq' is 0, expected at least 1"},
      {"/index_skip_topk_offset", -1, "config field 'index_skip_topk_offset' is -1"},
      {"/index_topk_pattern", "FFX", "the indexer pattern needs one F (full) or S (shared) for each of 8 layers"},
      {"/index_topk_pattern", "SFFFFFFF", "the indexer pattern starts with a shared layer"},
      {"/indexer_types", json::array({"full", 3}), "config field 'indexer_types' is [\"full\",3], expected an array"},
      {"/quantization_config", json{{"fmt", "e5m2"}},
       "config field 'quantization_config.fmt' is 'e5m2'; supported: e4m3", ErrorCode::kUnsupported},
      {"/quantization_config", json{{"quant_method", "awq"}},
       "config field 'quantization_config.quant_method' is 'awq'", ErrorCode::kUnsupported},
      {"/quantization_config", json{{"weight_block_size", {64, 64}}},
       "config field 'quantization_config.weight_block_size' is [64,64], expected [128, 128]", ErrorCode::kUnsupported},
  };
  for (const BadField& c : kCases) {
    json file = small_config();
    const json::json_pointer pointer(c.pointer);
    if (c.value.is_discarded()) {
      file[pointer.parent_pointer()].erase(pointer.back());
    } else {
      file[pointer] = c.value;
    }
    const auto config = parse_config(file.dump());
    ASSERT_FALSE(config) << c.pointer << " " << c.message;
    EXPECT_THAT(config.error().to_string(), HasSubstr(c.message));
    EXPECT_EQ(config.error().code, c.code) << c.message;
    EXPECT_EQ(config.error().to_string().find('\n'), std::string::npos);
  }
}

TEST(ConfigTest, ErrorsOfTheWholeFile) {
  EXPECT_EQ(parse_config("{").error().to_string(), "the config is not valid JSON");
  EXPECT_EQ(parse_config("").error().to_string(), "the config is not valid JSON");
  EXPECT_EQ(parse_config("[]").error().to_string(), "the config is not a JSON object");
  const auto missing = load_config("/nonexistent/config.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().to_string(), HasSubstr("/nonexistent/config.json"));
}

TEST(ConfigTest, RaggedSizesAreAccepted) {
  json file = small_config();
  for (const auto& [name, value] : {std::pair{"hidden_size", 200},
                                    {"q_lora_rank", 72},
                                    {"kv_lora_rank", 40},
                                    {"qk_nope_head_dim", 6},
                                    {"qk_rope_head_dim", 6},
                                    {"v_head_dim", 3},
                                    {"index_n_heads", 1},
                                    {"index_head_dim", 24}})
    file[name] = value;
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_FALSE(check_options(*config, Options{.hadamard = true}));
  EXPECT_TRUE(check_options(*config, Options{}));
}

TEST(ConfigTest, LayersThatExist) {
  const Config config;
  EXPECT_TRUE(check_layer(config, 0));
  EXPECT_TRUE(check_layer(config, 78));
  EXPECT_EQ(check_layer(config, 79).error().to_string(),
            "layer 79 does not exist: layers are 0 to 77, and 78 is the MTP layer");
  EXPECT_FALSE(check_layer(config, -1));
}

TEST(ShapesTest, RowsSpreadOverRequests) {
  const auto shapes = decode_shapes(8, 300, 3);
  ASSERT_TRUE(shapes) << shapes.error().to_string();
  EXPECT_EQ(shapes->requests, (std::vector<RequestShape>{{3, 300}, {3, 300}, {2, 300}}));
  EXPECT_EQ(*shapes->eval("M"), 8);
  EXPECT_EQ(*shapes->eval("KV"), 300);
  EXPECT_EQ(*shapes->eval("R"), 3);
  EXPECT_EQ(*shapes->eval("TABLE"), 5);
  EXPECT_GT(*shapes->eval("PAGES"), 15);
  EXPECT_GE(*shapes->eval("POS"), 300);
}

TEST(ShapesTest, BadBatchesAreNamed) {
  const auto message = [](int64_t m, int64_t kv, int64_t requests) {
    const auto shapes = decode_shapes(m, kv, requests);
    return shapes ? std::string("accepted") : shapes.error().to_string();
  };
  EXPECT_EQ(message(0, 10, 1), "M = 0: a batch needs at least one row");
  EXPECT_EQ(message(2, 0, 1), "KV = 0: a request needs at least one token");
  EXPECT_EQ(message(2, 10, 0), "requests = 0: a batch needs at least one request");
  EXPECT_EQ(message(2, 10, 3), "M = 2 rows are too few for 3 requests; each has at least one");
  EXPECT_THAT(message(16, 7, 2), HasSubstr("request 0 has 8 new tokens but a length of 7 tokens"));
  EXPECT_THAT(message(1, int64_t{1} << 40, 1), HasSubstr("at most"));
  EXPECT_THAT(message(int64_t{1} << 40, 1, 1), HasSubstr("at most"));
  EXPECT_THAT(message(60000, 4000000, 60000), HasSubstr("more than 32-bit slots can name"));
  EXPECT_FALSE(batch_shapes({}));
}

TEST(WeightNamesTest, Glm52BytesAndShapes) {
  const Config config;
  int64_t bytes = 0;
  for (const WeightSpec& w : layer_weights(config, 6)) {
    int64_t n = static_cast<int64_t>(size_in_bytes(w.dtype));
    for (const int64_t d : w.dims) n *= d;
    bytes += n;
    if (w.name == "model.layers.6.self_attn.kv_a_proj_with_mqa.weight_scale_inv") {
      EXPECT_EQ(w.dims, (std::vector<int64_t>{5, 48}));
      EXPECT_EQ(w.dtype, DType::kF32);
    }
  }
  // FP8 weights with all of kv_b_proj, their scales, norms and gate.
  EXPECT_EQ(bytes, 12'582'912 + 3'538'944 + 786'432 + 33'554'432 + 8'388'608 + 28672 * 512 + 3072 + 960 + 192 + 8192 +
                       2048 + 224 * 4 * 4 + 12'288 + 4096 + 1024 + 512 + 393'216);
  EXPECT_EQ(layer_weights(config, 6).size(), 18U);
  EXPECT_EQ(layer_weights(config, 7).size(), 11U);
}

}  // namespace
}  // namespace megartp::glm52
