// GLM-5.2 (and models with the same attention): config, attention-pre graph, weight names, batch shapes.
//
// Called by the command-line tool, tests and examples. A Config that came from parse_config or passed check_config is
// one that every function here accepts. Inputs and checkpoints: inputs.h, weights.h; readable intermediates: outputs.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/dim.h"
#include "megartp/dtype.h"
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
  bool rope_interleave = true;          // MLA; nothing else is implemented
  bool indexer_rope_interleave = true;  // false for model_type deepseek_v32
  // Which layers own an indexer: one 'F' (full) or 'S' (shared) a layer; empty: by frequency and offset
  // (layer_has_indexer).
  std::string indexer_pattern;
  int64_t index_topk_freq = 4;  // 1: every layer has an indexer
  int64_t index_skip_topk_offset = 3;
  // YaRN (DeepSeek-V3.2); factor 1 = none.
  double yarn_factor = 1.0;
  double yarn_original_max_position = 4096;
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  // cos and sin are scaled by m(mscale) / m(mscale_all_dim), m(x) = 0.1 x ln(factor) + 1: by 1 for DeepSeek.
  double yarn_mscale = 1;
  double yarn_mscale_all_dim = 1;

  friend bool operator==(const Config&, const Config&) = default;
};

// Options that the specification leaves open; defaults are its picks.
struct Options {
  bool hadamard = false;        // rotate indexer q and k by H/sqrt(D) after RoPE
  bool act_pow2_scale = false;  // activation scales of a8 and q8
  bool index_q_pow2_scale = true;
  bool index_k_pow2_scale = false;
  bool mla_pow2_scale = true;
};

// The values of zai-org/GLM-5.2-FP8 (the defaults above) and of DeepSeek-V3.2.
Config glm_5_2_config();
Config deepseek_v3_2_config();

// Reads an HF config.json; fields that HF itself may omit get HF's defaults. Errors name the field: kParse for a
// missing one, a wrong type or a value out of range; kUnsupported for a model type, RoPE type or quantisation that is
// not implemented.
Result<Config> parse_config(std::string_view json_text);
Result<Config> load_config(const std::string& path);
// HF style; parse_config gives the same Config back.
std::string config_to_json(const Config& config);
// kInvalidArgument with the field's name when a size is not positive, too large, or does not fit the others.
Status check_config(const Config& config);
// kInvalidArgument when an option asks for what the config's sizes do not allow (Hadamard of a size that is no power of
// two).
Status check_options(const Config& config, const Options& options);
// kInvalidArgument unless 0 <= layer <= num_hidden_layers (the last is the MTP layer).
Status check_layer(const Config& config, int64_t layer);

// Does this layer own an indexer (IndexShare)? GLM-5.2: {0, 1, 2, 6, 10, ..., 74}; index num_hidden_layers is the MTP
// layer.
bool layer_has_indexer(const Config& config, int64_t layer);

// FP8 weights have one fp32 scale per block of 128 x 128.
inline constexpr int64_t kScaleBlock = 128;

// Expected checkpoint tensors of one layer, by HF name, in the order of the ops that read them.
struct WeightSpec {
  enum class Kind : uint8_t { kNorm, kNormBias, kGate, kFp8, kScale };
  std::string name;
  DType dtype = DType::kF8E4M3;
  std::vector<int64_t> dims;
  std::string graph_tensor;  // name of the graph's weight tensor: the HF name
  Kind kind = Kind::kFp8;
};
std::vector<WeightSpec> layer_weights(const Config& config, int64_t layer);

// Records one layer's attention-pre. Ops are <prefix>A0, <prefix>B0, ...; activations, outputs and caches are named
// with the prefix too ("" for a single layer); positions, context_lens, slot_mapping, block_table and cos_sin are
// shared by all layers of a graph. Without `x` or `residual` the layer gets an argument <prefix>x or <prefix>residual.
// Errors are kept in graph.status().
struct LayerTensors {
  Tensor x, residual;          // inputs
  Tensor residual_out, q_out;  // outputs
  Tensor logits;               // invalid for a layer without indexer
  Tensor index_k_cache;        // invalid for a layer without indexer
  Tensor mla_kv_cache;
};
LayerTensors add_attention_pre(OpGraph& graph, const Config& config, const Options& options, int64_t layer,
                               std::string_view prefix, Tensor x = {}, Tensor residual = {});
// A graph of `num_layers` consecutive layers from `first_layer`. One layer has no prefix, several have "L<layer>."; the
// residual runs through them, x of each is an argument. Outputs: residual_out of the last layer, q_out and logits of
// each.
OpGraph attention_pre_graph(const Config& config, const Options& options, int64_t first_layer, int64_t num_layers = 1);

// Values of the symbols M, KV (longest request), R, TABLE, PAGES and POS, with room in the caches for each request's
// tokens. kInvalidArgument for no requests, and for a request with no rows or with fewer visible tokens than rows.
Result<ShapeEnv> batch_shapes(std::span<const RequestShape> requests);
// M rows spread over `requests` (the first ones take the remainder), each with longest length kv.
Result<ShapeEnv> decode_shapes(int64_t m, int64_t kv, int64_t requests);

}  // namespace megartp::glm52
