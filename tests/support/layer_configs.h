// Layers and graphs that several tests cut, prove and run.
#pragma once

#include "megartp/op_graph.h"
#include "models/glm52/glm52.h"

namespace megartp::test {

// A small layer with GLM-5.2's proportions: every op, several tiles of each kind.
inline glm52::Config small_config() {
  glm52::Config c;
  c.hidden_size = 512;
  c.q_lora_rank = 256;
  c.kv_lora_rank = 128;
  c.num_attention_heads = 4;
  c.qk_nope_head_dim = 192;
  c.v_head_dim = 64;
  c.index_n_heads = 4;
  return c;
}

// Ragged everywhere: no size is a multiple of a tile.
inline glm52::Config ragged_config() {
  glm52::Config c;
  c.hidden_size = 456;
  c.q_lora_rank = 200;
  c.kv_lora_rank = 88;
  c.num_attention_heads = 3;
  c.qk_nope_head_dim = 40;
  c.qk_rope_head_dim = 24;
  c.v_head_dim = 56;
  c.index_n_heads = 3;
  c.index_head_dim = 64;
  return c;
}

// The families that attention-pre does not use: add, rmsnorm, gemm.
inline OpGraph plain_chain() {
  OpGraph graph("chain");
  const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 72});
  const Tensor norm_w = graph.bound_weight("norm_w", DType::kBF16, {72});
  const Tensor w = graph.bound_weight("w", DType::kBF16, {200, 72});
  graph.set_outputs({graph.gemm(graph.rmsnorm(graph.add(x, x), norm_w), w)});
  return graph;
}

}  // namespace megartp::test
