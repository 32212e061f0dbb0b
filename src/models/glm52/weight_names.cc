// The checkpoint tensors of a layer.
#include "models/glm52/weight_names.h"

#include <fmt/format.h>

#include "base/math.h"
#include "models/glm52/glm52.h"

namespace megartp::glm52 {
namespace {

using Kind = WeightSpec::Kind;

}  // namespace

std::string layer_name(int64_t layer, std::string_view tensor) {
  return fmt::format("model.layers.{}.{}", layer, tensor);
}
std::string attention_name(int64_t layer, std::string_view tensor) {
  return fmt::format("model.layers.{}.self_attn.{}", layer, tensor);
}

std::vector<WeightSpec> layer_weights(const Config& c, int64_t layer) {
  std::vector<WeightSpec> specs;
  const auto add = [&](std::string name, DType dtype, std::vector<int64_t> dims, Kind kind) {
    std::string graph_tensor = name;
    specs.push_back({std::move(name), dtype, std::move(dims), std::move(graph_tensor), kind});
  };
  const auto fp8 = [&](std::string_view name, int64_t n, int64_t k) {
    add(attention_name(layer, fmt::format("{}.weight", name)), DType::kF8E4M3, {n, k}, Kind::kFp8);
    add(attention_name(layer, fmt::format("{}.weight_scale_inv", name)), DType::kF32,
        {ceil_div<int64_t>(n, kScaleBlock), ceil_div<int64_t>(k, kScaleBlock)}, Kind::kScale);
  };
  const auto norm = [&](std::string name, int64_t n, Kind kind = Kind::kNorm) {
    add(std::move(name), DType::kBF16, {n}, kind);
  };

  norm(layer_name(layer, "input_layernorm.weight"), c.hidden_size);
  fp8("q_a_proj", c.q_lora_rank, c.hidden_size);
  fp8("kv_a_proj_with_mqa", c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size);
  norm(attention_name(layer, "q_a_layernorm.weight"), c.q_lora_rank);
  norm(attention_name(layer, "kv_a_layernorm.weight"), c.kv_lora_rank);
  if (layer_has_indexer(c, layer)) {
    add(attention_name(layer, "indexer.weights_proj.weight"), DType::kBF16, {c.index_n_heads, c.hidden_size},
        Kind::kGate);
    fp8("indexer.wk", c.index_head_dim, c.hidden_size);
    norm(attention_name(layer, "indexer.k_norm.weight"), c.index_head_dim);
    norm(attention_name(layer, "indexer.k_norm.bias"), c.index_head_dim, Kind::kNormBias);
    fp8("indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank);
  }
  fp8("q_b_proj", c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim), c.q_lora_rank);
  fp8("kv_b_proj", c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank);
  return specs;
}

}  // namespace megartp::glm52
