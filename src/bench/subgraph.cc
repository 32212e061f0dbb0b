#include "bench/subgraph.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace megartp::bench {
namespace {

class Subgraph {
 public:
  Subgraph(const OpGraph& graph, std::span<const std::string> ops) : graph_(graph), ops_(ops), out_(graph.name()) {
    copies_.resize(graph.tensors().size());
  }

  Result<OpGraph> build() {
    for (const std::string& name : ops_)
      if (std::ranges::find(graph_.ops(), name, &OpInfo::name) == graph_.ops().end())
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("graph '{}' has no op '{}' to keep", graph_.name(), name));
    for (const OpInfo& op : graph_.ops())
      if (is_kept(op)) record(op);
    MEGARTP_TRY(Status(out_.status()));
    return std::move(out_);
  }

 private:
  bool is_kept(const OpInfo& op) const { return ops_.empty() || std::ranges::find(ops_, op.name) != ops_.end(); }

  bool is_updated(TensorId id) const {
    return std::ranges::any_of(graph_.ops(), [&](const OpInfo& op) {
      return is_kept(op) && std::ranges::find(op.updates, id) != op.updates.end();
    });
  }

  Tensor leaf(TensorId id) {
    const TensorInfo& t = graph_.tensor(id);
    if (t.storage == Storage::kWeight) return out_.bound_weight(t.name, t.dtype, t.shape);
    if (t.storage == Storage::kState || is_updated(id)) return out_.state(t.name, t.dtype, t.shape);
    return out_.runtime_arg(t.name, t.dtype, t.shape);
  }

  void record(const OpInfo& op) {
    std::vector<Tensor> inputs;
    for (const TensorId id : op.inputs) {
      if (!copies_[id].valid()) copies_[id] = leaf(id);
      inputs.push_back(copies_[id]);
    }
    std::vector<std::string_view> names;
    for (const TensorId id : op.outputs) names.push_back(graph_.tensor(id).name);
    const std::vector<Tensor> outputs = out_.op(op.kind, op.name, inputs, op.attrs, names);
    for (size_t i = 0; i < outputs.size() && i < op.outputs.size(); ++i) copies_[op.outputs[i]] = outputs[i];
  }

  const OpGraph& graph_;
  std::span<const std::string> ops_;
  OpGraph out_;
  std::vector<Tensor> copies_;  // by the graph's id
};

}  // namespace

Result<OpGraph> subgraph(const OpGraph& graph, std::span<const std::string> ops) {
  return Subgraph(graph, ops).build();
}

}  // namespace megartp::bench
