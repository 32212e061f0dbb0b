#include "graph/graph_view.h"

#include <algorithm>

namespace megartp {
namespace {

std::string type_line(const TensorInfo& t) { return std::string(to_string(t.dtype)) + " " + to_string(t.shape); }

NodeKind leaf_kind(Storage storage) {
  if (storage == Storage::kWeight) return NodeKind::kWeight;
  return storage == Storage::kState ? NodeKind::kState : NodeKind::kRuntimeArg;
}

class Builder {
 public:
  explicit Builder(const OpGraph& graph)
      : graph_(graph),
        leaf_(graph.tensors().size(), kInvalidId),
        writer_(graph.tensors().size(), kInvalidId),
        is_used_(graph.tensors().size(), false) {}

  GraphView build() {
    for (TensorId id = 0; id < graph_.tensors().size(); ++id)
      if (const TensorInfo& t = graph_.tensor(id); t.producer == kInvalidId)
        leaf_[id] = add_node(leaf_kind(t.storage), {t.name, type_line(t)});
    for (const OpInfo& op : graph_.ops()) add_op(op);
    for (const TensorId id : graph_.outputs()) add_output(id);
    add_unused();
    return std::move(view_);
  }

 private:
  uint32_t add_node(NodeKind kind, std::vector<std::string> lines) {
    view_.nodes.push_back({kind, std::move(lines)});
    return static_cast<uint32_t>(view_.nodes.size() - 1);
  }

  void add_op(const OpInfo& op) {
    const uint32_t node = add_node(NodeKind::kOp, {op.name, op.kind});
    for (const TensorId id : op.inputs) {
      const bool in_place = std::find(op.updates.begin(), op.updates.end(), id) != op.updates.end();
      const TensorInfo& t = graph_.tensor(id);
      is_used_[id] = true;
      std::vector<std::string> lines{t.name, type_line(t)};
      if (in_place) lines.emplace_back("updated in place");
      const uint32_t source = writer_[id] == kInvalidId ? leaf_[id] : writer_[id];
      view_.edges.push_back({source, node, in_place ? EdgeKind::kInPlace : EdgeKind::kUse, std::move(lines)});
    }
    for (const TensorId id : op.updates) {
      writer_[id] = node;
      if (leaf_[id] != kInvalidId)
        view_.edges.push_back({node, leaf_[id], EdgeKind::kWriteBack, {"writes " + graph_.tensor(id).name}});
    }
    for (const TensorId id : op.outputs) writer_[id] = node;
  }

  void add_output(TensorId id) {
    const TensorInfo& t = graph_.tensor(id);
    is_used_[id] = true;
    const uint32_t node = add_node(NodeKind::kOutput, {t.name, type_line(t)});
    const uint32_t source = writer_[id] == kInvalidId ? leaf_[id] : writer_[id];
    view_.edges.push_back({source, node, EdgeKind::kUse, {}});
  }

  void add_unused() {
    for (TensorId id = 0; id < graph_.tensors().size(); ++id) {
      const TensorInfo& t = graph_.tensor(id);
      if (is_used_[id] || t.producer == kInvalidId) continue;
      const uint32_t node = add_node(NodeKind::kUnused, {t.name, type_line(t)});
      view_.edges.push_back({writer_[id], node, EdgeKind::kUse, {}});
    }
  }

  const OpGraph& graph_;
  GraphView view_;
  std::vector<uint32_t> leaf_;    // node of a bound tensor
  std::vector<uint32_t> writer_;  // node of the op that wrote the tensor last
  std::vector<bool> is_used_;
};

}  // namespace

GraphView make_view(const OpGraph& graph) { return Builder(graph).build(); }

}  // namespace megartp
