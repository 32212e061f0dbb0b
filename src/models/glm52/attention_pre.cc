// Attention-pre as a graph.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/glm52/glm52.h"
#include "models/glm52/weight_names.h"
#include "ops/common/paged_cache.h"

namespace megartp::glm52 {
namespace {

constexpr double kIndexNormEps = 1e-6;  // fixed in every implementation, whatever rms_norm_eps says

class LayerBuilder {
 public:
  LayerBuilder(OpGraph& graph, const Config& config, const Options& options, int64_t layer, std::string_view prefix)
      : graph_(graph), config_(config), options_(options), layer_(layer), prefix_(prefix) {
    for (const WeightSpec& w : layer_weights(config, layer)) weights_.push_back(w);
  }

  LayerTensors build(Tensor x, Tensor residual) {
    const Config& c = config_;
    const bool indexer = layer_has_indexer(c, layer_);
    LayerTensors t;
    t.x = x.valid() ? x : graph_.runtime_arg(named("x"), DType::kBF16, {"M", c.hidden_size});
    t.residual =
        residual.valid() ? residual : graph_.runtime_arg(named("residual"), DType::kBF16, {"M", c.hidden_size});
    const Tensor positions = shared("positions", DType::kI32, {"M"});
    const Tensor slots = shared("slot_mapping", DType::kI32, {"M"});
    const Tensor cos_sin = shared("cos_sin", DType::kF32, {"POS", c.qk_rope_head_dim});
    t.mla_kv_cache =
        graph_.state(named("mla_kv_cache"), DType::kU8,
                     {"PAGES", ops::kPageTokens * ops::mla_record_bytes(c.kv_lora_rank, c.qk_rope_head_dim)});

    // Program order is the order in which tiles are dealt to workers: what the longest chain needs comes first.
    const auto a0 = op("add_rmsnorm_quant", "A0", {t.x, t.residual, weight("input_layernorm.weight")},
                       {{"eps", c.rms_norm_eps}, {"pow2_scale", options_.act_pow2_scale}},
                       {"residual_out", "norm", "hidden_q", "hidden_scale"});
    t.residual_out = a0[0];
    const auto b0 = op(
        "qkv_a", "B0",
        {a0[2], a0[3], attention("q_a_proj.weight"), attention("q_a_proj.weight_scale_inv"),
         attention("kv_a_proj_with_mqa.weight"), attention("kv_a_proj_with_mqa.weight_scale_inv"),
         attention("q_a_layernorm.weight"), attention("kv_a_layernorm.weight"), positions, cos_sin, slots,
         t.mla_kv_cache},
        {{"eps", c.rms_norm_eps}, {"pow2_scale", options_.act_pow2_scale}, {"mla_pow2_scale", options_.mla_pow2_scale}},
        {"q_resid", "q_resid_scale", "kv"});
    std::vector<Tensor> d1;
    if (indexer) {
      t.index_k_cache =
          graph_.state(named("index_k_cache"), DType::kU8, {"PAGES", ops::index_page_bytes(c.index_head_dim)});
      const auto c0 = op("head_gate", "C0", {a0[1], attention("indexer.weights_proj.weight")}, {}, {"gate_partials"});
      op("indexer_k", "B1",
         {a0[2], a0[3], attention("indexer.wk.weight"), attention("indexer.wk.weight_scale_inv"),
          attention("indexer.k_norm.weight"), attention("indexer.k_norm.bias"), positions, cos_sin, slots,
          t.index_k_cache},
         {{"eps", kIndexNormEps},
          {"interleave", c.indexer_rope_interleave},
          {"hadamard", options_.hadamard},
          {"pow2_scale", options_.index_k_pow2_scale}},
         {});
      d1 = op("indexer_q", "D1",
              {b0[0], b0[1], attention("indexer.wq_b.weight"), attention("indexer.wq_b.weight_scale_inv"), c0[0],
               positions, cos_sin},
              {{"heads", c.index_n_heads},
               {"interleave", c.indexer_rope_interleave},
               {"hadamard", options_.hadamard},
               {"pow2_scale", options_.index_q_pow2_scale},
               {"score_scale", 1.0 / std::sqrt(static_cast<double>(c.index_head_dim * c.index_n_heads))}},
              {"index_q", "index_q_scale", "head_weights", "gate"});
    }
    const auto d0 =
        op("main_q", "D0",
           {b0[0], b0[1], attention("q_b_proj.weight"), attention("q_b_proj.weight_scale_inv"), positions, cos_sin},
           {{"heads", c.num_attention_heads},
            {"nope", c.qk_nope_head_dim},
            {"rope", c.qk_rope_head_dim},
            {"kv_lora", c.kv_lora_rank}},
           {"q_nope", "q_out"});
    t.q_out = d0[1];
    op("q_absorb", "D2", {d0[0], attention("kv_b_proj.weight"), attention("kv_b_proj.weight_scale_inv"), t.q_out},
       {{"v", c.v_head_dim}}, {});
    if (indexer) {
      const Tensor lens = shared("context_lens", DType::kI32, {"M"});
      const Tensor table = shared("block_table", DType::kI32, {"R", "TABLE"});
      t.logits = op("indexer_score", "E1", {d1[0], d1[2], t.index_k_cache, lens, table}, {}, {"logits"})[0];
    }
    return t;
  }

 private:
  std::string named(std::string_view name) const { return prefix_ + std::string(name); }

  Tensor shared(std::string_view name, DType dtype, Shape shape) {
    const Tensor t = graph_.find_tensor(name);
    return t.valid() ? t : graph_.runtime_arg(name, dtype, std::move(shape));
  }
  Tensor bind(const std::string& name) {
    const auto it = std::find_if(weights_.begin(), weights_.end(), [&](const WeightSpec& w) { return w.name == name; });
    if (it == weights_.end()) return {};
    return graph_.bound_weight(it->graph_tensor, it->dtype, Shape(it->dims.begin(), it->dims.end()));
  }
  Tensor weight(std::string_view name) { return bind(layer_name(layer_, name)); }
  Tensor attention(std::string_view name) { return bind(attention_name(layer_, name)); }

  std::vector<Tensor> op(std::string_view kind, std::string_view name, std::initializer_list<Tensor> inputs,
                         Attrs attrs, std::initializer_list<std::string_view> outputs) {
    std::vector<std::string> names;
    for (const std::string_view o : outputs) names.push_back(named(o));
    const std::vector<std::string_view> views(names.begin(), names.end());
    return graph_.op(kind, named(name), std::span(inputs.begin(), inputs.size()), std::move(attrs), views);
  }

  OpGraph& graph_;
  const Config& config_;
  const Options& options_;
  int64_t layer_;
  std::string prefix_;
  std::vector<WeightSpec> weights_;
};

}  // namespace

LayerTensors add_attention_pre(OpGraph& graph, const Config& config, const Options& options, int64_t layer,
                               std::string_view prefix, Tensor x, Tensor residual) {
  return LayerBuilder(graph, config, options, layer, prefix).build(x, residual);
}

OpGraph attention_pre_graph(const Config& config, const Options& options, int64_t first_layer, int64_t num_layers) {
  OpGraph graph("glm52-attention-pre");
  std::vector<Tensor> outputs;
  LayerTensors last;
  for (int64_t layer = first_layer; layer < first_layer + num_layers; ++layer) {
    const std::string prefix = num_layers == 1 ? std::string() : fmt::format("L{}.", layer);
    last = add_attention_pre(graph, config, options, layer, prefix, {}, last.residual_out);
    outputs.push_back(last.q_out);
    if (last.logits.valid()) outputs.push_back(last.logits);
    outputs.push_back(last.mla_kv_cache);
    if (last.index_k_cache.valid()) outputs.push_back(last.index_k_cache);
  }
  outputs.insert(outputs.begin(), last.residual_out);
  graph.set_outputs(outputs);
  return graph;
}

}  // namespace megartp::glm52
