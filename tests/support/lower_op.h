// Lowers one op of a graph to its family's stages, without buffers: for tests that look at tile counts and regions of
// full-size ops.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/op_family.h"

namespace megartp::test {

class OneOpContext final : public LowerContext {
 public:
  OneOpContext(const OpGraph& graph, const OpInfo& op, ShapeEnv shapes, FinalizerMode mode, uint32_t num_sms = 0)
      : op_(op), shapes_(std::move(shapes)), mode_(mode), num_sms_(num_sms) {
    for (const TensorInfo& t : graph.tensors())
      tensors_.push_back({t.name, t.dtype, shapes_.eval(t.shape).value(), t.storage, t.is_partial});
  }
  const OpInfo& op() const override { return op_; }
  const ConcreteTensor& tensor(TensorId id) const override { return tensors_.at(id); }
  const ShapeEnv& shapes() const override { return shapes_; }
  FinalizerMode finalizer() const override { return mode_; }
  uint32_t num_sms() const override { return num_sms_; }
  TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool is_partial) override {
    tensors_.push_back({op_.name + "." + std::string(name), dtype, std::move(dims), Storage::kActivation, is_partial});
    return static_cast<TensorId>(tensors_.size() - 1);
  }

 private:
  OpInfo op_;
  ShapeEnv shapes_;
  FinalizerMode mode_;
  uint32_t num_sms_;
  std::vector<ConcreteTensor> tensors_;
};

// The stages of the graph's last op.
inline Result<std::vector<std::unique_ptr<Stage>>> lower_last_op(const OpGraph& graph, const ShapeEnv& shapes,
                                                                 FinalizerMode mode, uint32_t num_sms = 0) {
  OneOpContext context(graph, graph.ops().back(), shapes, mode, num_sms);
  return find_op_family(graph.ops().back().kind)->lower(context);
}

}  // namespace megartp::test
