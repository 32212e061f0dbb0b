// GLM-5.2 (and models with the same attention): config, attention-pre graph, weights, inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "io/safetensors.h"
#include "megartp/dim.h"
#include "megartp/error.h"
#include "megartp/op_graph.h"

namespace megartp::glm52 {

// The fields of an HF config.json that attention-pre needs. Defaults: GLM-5.2.
struct Config {
  std::string model_type = "glm_moe_dsa";
  int64_t hidden_size = 6144;
  int64_t num_hidden_layers = 78;
  int64_t num_attention_heads = 64;
  int64_t q_lora_rank = 2048;
  int64_t kv_lora_rank = 512;
  int64_t qk_nope_head_dim = 192;
  int64_t qk_rope_head_dim = 64;
  int64_t v_head_dim = 256;
  int64_t index_n_heads = 32;
  int64_t index_head_dim = 128;
  double rms_norm_eps = 1e-5;
  double rope_theta = 8e6;
  bool rope_interleave = true;          // MLA
  bool indexer_rope_interleave = true;  // false for model_type deepseek_v32
  int64_t index_topk_freq = 4;          // 1: every layer has an indexer
  int64_t index_skip_topk_offset = 3;
  // YaRN (DeepSeek-V3.2); factor 1 = none.
  double yarn_factor = 1.0;
  double yarn_original_max_position = 4096;
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  double yarn_mscale = 1;          // scales of cos and sin: mscale / mscale_all_dim, 1 for DeepSeek
  double yarn_mscale_all_dim = 1;
};

// Options that the specification leaves open; defaults are its picks.
struct Options {
  bool hadamard = false;         // rotate indexer q and k by H/sqrt(D) after RoPE
  bool act_pow2_scale = false;   // activation scales of a8 and q8
  bool index_q_pow2_scale = true;
  bool index_k_pow2_scale = false;
  bool mla_pow2_scale = true;
};

// Reads an HF config.json. Errors name the field: missing, wrong type, out of range, dims that do not divide.
Result<Config> parse_config(std::string_view json_text);
Result<Config> load_config(const std::string& path);
std::string config_to_json(const Config& config);
Status check_config(const Config& config);

// Does this layer own an indexer (IndexShare)? GLM-5.2: {0, 1, 2, 6, 10, ..., 74}; index num_hidden_layers is the MTP layer.
bool layer_has_indexer(const Config& config, int64_t layer);

// Expected checkpoint tensors of one layer, by HF name.
struct WeightSpec {
  std::string name;
  DType dtype = DType::kF8E4M3;
  std::vector<int64_t> dims;
  std::string graph_tensor;  // name of the graph's weight tensor
};
std::vector<WeightSpec> layer_weights(const Config& config, int64_t layer);

// Records one layer's attention-pre. Tensor names get `prefix` ("" for a single layer); ops are <prefix>A0, <prefix>B0, ...
struct LayerTensors {
  Tensor x, residual;         // inputs
  Tensor residual_out, q_out; // outputs
  Tensor logits;              // invalid for a layer without indexer
  Tensor index_k_cache, mla_kv_cache;
};
LayerTensors add_attention_pre(OpGraph& graph, const Config& config, const Options& options, int64_t layer,
                               std::string_view prefix, Tensor x = {}, Tensor residual = {});
// A graph of `num_layers` consecutive layers from `first_layer`; the residual runs through them, x of each is an argument.
OpGraph attention_pre_graph(const Config& config, const Options& options, int64_t first_layer, int64_t num_layers = 1);

// Values of the symbols: M rows spread over `requests` (the first ones take the remainder), each with longest length kv.
Result<ShapeEnv> decode_shapes(const Config& config, int64_t m, int64_t kv, int64_t requests);

}  // namespace megartp::glm52
