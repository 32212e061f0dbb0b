#include "support/qwen3_partition.h"

#include <string>

#include <fmt/format.h>

namespace megartp::test {
namespace {

constexpr int64_t kHidden = 4096;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kQueryHeads = 32;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kIntermediate = 12288;
constexpr int64_t kPaddedVocabulary = 153600;

constexpr int64_t kNone = -1;
using Map = std::array<int64_t, 3>;
constexpr Map kWholeTensor{kNone, kNone, kNone};
constexpr Map kRows{0, kNone, kNone};     // grid.x splits dim 0
constexpr Map kColumns{1, kNone, kNone};  // grid.x splits dim 1

class Qwen3Builder {
 public:
  explicit Qwen3Builder(const Qwen3Sizes& sizes) : sizes_(sizes) {}

  PartitionGraph build() {
    tensor("tokens", {sizes_.tokens});
    tensor("embedding", {kPaddedVocabulary, kHidden});
    op("embed", {1, 1, 1}, {{"tokens", kWholeTensor}, {"embedding", kWholeTensor}},
       {{activation("x", kHidden), kWholeTensor}});
    std::string x = "x";
    for (int64_t layer = 0; layer < sizes_.layers; ++layer) x = add_layer(fmt::format("layer{}.", layer), x);
    const std::string normed = norm("final_norm", x);
    const std::string logits =
        project("lm_head", 600, normed, kHidden, activation("logits", kPaddedVocabulary), kPaddedVocabulary, "");
    op("argmax_partial", {128, 1, 1}, {{logits, kColumns}},
       {{activation("max_value", 128), kColumns}, {activation("max_index", 128), kColumns}});
    op("argmax_reduce", {1, 1, 1}, {{"max_value", kWholeTensor}, {"max_index", kWholeTensor}},
       {{activation("next_token", 1), kWholeTensor}});
    return std::move(graph_);
  }

 private:
  std::string add_layer(const std::string& layer, const std::string& x) {
    constexpr int64_t kQkvColumns = (kQueryHeads + 2 * kKvHeads) * kHeadDim;
    const std::string qkv = project(layer + "qkv", 128, norm(layer + "attention_norm", x), kHidden,
                                    activation(layer + "qkv.out", kQkvColumns), kQkvColumns, "");
    // The columns of qkv stand by KV head, so one head is one block of them.
    op(layer + "attention", {sizes_.requests, kKvHeads, 1}, {{qkv, {0, 1, kNone}}},
       {{activation(layer + "attention.out", kQueryHeads * kHeadDim), {0, 1, kNone}}});
    const std::string after = project(layer + "o_proj", 64, layer + "attention.out", kQueryHeads * kHeadDim,
                                      activation(layer + "o_proj.out", kHidden), kHidden, x);
    const std::string gate_up = project(layer + "gate_up", 128, norm(layer + "mlp_norm", after), kHidden,
                                        activation(layer + "gate_up.out", 2 * kIntermediate), 2 * kIntermediate, "");
    op(layer + "silu", {64, 1, 1}, {{gate_up, kColumns}}, {{activation(layer + "silu.out", kIntermediate), kColumns}});
    return project(layer + "down", 64, layer + "silu.out", kIntermediate, activation(layer + "down.out", kHidden),
                   kHidden, after);
  }

  std::string norm(const std::string& name, const std::string& input) {
    const std::string out = activation(name + ".out", kHidden);
    const std::string weight = tensor(name + ".weight", {kHidden});
    op(name, {sizes_.tokens, 1, 1}, {{input, kRows}, {weight, kWholeTensor}}, {{out, kRows}});
    return out;
  }

  std::string project(const std::string& name, int64_t num_tasks, const std::string& input, int64_t in_columns,
                      const std::string& out, int64_t out_columns, const std::string& residual) {
    const std::string weight = tensor(name + ".weight", {in_columns, out_columns});
    std::vector<PartitionAccess> inputs{{input, kWholeTensor}, {weight, kColumns}};
    if (!residual.empty()) inputs.push_back({residual, kColumns});
    op(name, {num_tasks, 1, 1}, std::move(inputs), {{out, kColumns}});
    return out;
  }

  std::string activation(const std::string& name, int64_t columns) { return tensor(name, {sizes_.tokens, columns}); }
  std::string tensor(const std::string& name, std::vector<int64_t> shape) {
    graph_.tensors.push_back({name, std::move(shape)});
    return name;
  }
  void op(const std::string& name, std::array<int64_t, 3> grid, std::vector<PartitionAccess> inputs,
          std::vector<PartitionAccess> outputs) {
    graph_.ops.push_back({name, grid, std::move(inputs), std::move(outputs)});
  }

  Qwen3Sizes sizes_;
  PartitionGraph graph_;
};

}  // namespace

PartitionGraph qwen3_8b(const Qwen3Sizes& sizes) { return Qwen3Builder(sizes).build(); }

}  // namespace megartp::test
