// Graphs that the tests of this folder share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megartp/op_graph.h"

namespace megartp::test {

// In-place updates: `first` and `second` both update the state `q_out`, `third` reads it afterwards and updates an
// activation of its own.
inline OpGraph absorb_chain() {
  OpGraph g("absorb_chain");
  const Tensor q_nope = g.runtime_arg("q_nope", DType::kBF16, {"M", 2, 128});
  const OpGraph::Quantized kv_b{g.bound_weight("kv_b", DType::kF8E4M3, {512, 256}),
                                g.bound_weight("kv_b_scale", DType::kF32, {4, 2})};
  const Tensor q_out = g.state("q_out", DType::kBF16, {"M", 2, 320});
  g.q_absorb(q_nope, kv_b, q_out, {{"v", int64_t{128}}}, "first");
  g.q_absorb(q_nope, kv_b, q_out, {{"v", int64_t{128}}}, "second");
  const OpGraph::Quantized wide{g.bound_weight("wide", DType::kF8E4M3, {640, 256}),
                                g.bound_weight("wide_scale", DType::kF32, {5, 2})};
  const Tensor last = g.state("last", DType::kBF16, {"M", 2, 256});
  g.q_absorb(q_out, wide, last, {{"v", int64_t{0}}}, "third");
  g.set_outputs({q_out});
  return g;
}

// A graph of `add` ops that `choices` decide: every two words are one step. Any list gives a graph without an error.
inline OpGraph random_graph(const std::vector<uint32_t>& choices) {
  OpGraph g("random");
  const Shape shapes[] = {{"M", 8}, {"M", 64}, {3, 8}, {Dim::sym("KV", 256), 16}};
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < 4; ++i) tensors.push_back(g.runtime_arg("arg" + std::to_string(i), DType::kBF16, shapes[i]));
  std::vector<Tensor> outputs;
  for (size_t i = 0; i + 1 < choices.size(); i += 2) {
    const Tensor a = tensors[choices[i] % tensors.size()];
    const std::string name = "n" + std::to_string(i);
    const Shape& shape = g.tensor(a.id).shape;
    switch (choices[i + 1] % 4) {
      case 0: tensors.push_back(g.state(name, DType::kBF16, shape)); break;
      case 1: tensors.push_back(g.bound_weight(name, DType::kBF16, shape)); break;
      default: {
        Tensor b = tensors[choices[i + 1] / 4 % tensors.size()];
        if (g.tensor(b.id).shape != shape) b = a;
        tensors.push_back(g.add(a, b, choices[i + 1] % 4 == 2 ? name : ""));
        if (choices[i] % 5 == 0) outputs.push_back(tensors.back());
      }
    }
  }
  g.set_outputs(outputs);
  return g;
}

}  // namespace megartp::test
