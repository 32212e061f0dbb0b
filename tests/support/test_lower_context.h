// A LowerContext over a graph of one op, for tests that look at a family's stages themselves.
#pragma once

#include <string>
#include <vector>

#include "ops/op_family.h"

namespace megartp::test {

// Keeps references: graph and shapes must outlive it.
class TestLowerContext final : public LowerContext {
 public:
  TestLowerContext(const OpGraph& graph, const ShapeEnv& shapes, FinalizerMode mode)
      : op_(graph.ops()[0]), shapes_(shapes), mode_(mode) {
    for (const TensorInfo& t : graph.tensors())
      tensors_.push_back({t.name, t.dtype, shapes.eval(t.shape).value(), t.storage, false});
  }
  const OpInfo& op() const override { return op_; }
  const ConcreteTensor& tensor(TensorId id) const override { return tensors_[id]; }
  const ShapeEnv& shapes() const override { return shapes_; }
  FinalizerMode finalizer() const override { return mode_; }
  TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool is_partial) override {
    tensors_.push_back({op_.name + "." + std::string(name), dtype, std::move(dims), Storage::kActivation, is_partial});
    return static_cast<TensorId>(tensors_.size() - 1);
  }

  // The instruction of one tile and its operands, as check_instruction sees them; `operands` gets abi::kOperandSlots
  // entries.
  abi::Instruction instruction(const Stage& stage, uint32_t tile_idx, std::vector<OperandType>& operands) const {
    TileDesc tile;
    stage.tile(tile_idx, tile);
    abi::Instruction out{};
    out.opcode = stage.opcode;
    out.counts = abi::make_counts(0, 0, tile.num_payload);
    for (uint32_t w = 0; w < tile.num_payload; ++w) out.payload[w] = tile.payload[w];
    operands.assign(abi::kOperandSlots, {});
    for (size_t s = 0; s < stage.slots.size(); ++s)
      if (stage.slots[s] != kInvalidId)
        operands[s] = {true, tensors_[stage.slots[s]].dtype, tensors_[stage.slots[s]].dims};
    return out;
  }

 private:
  const OpInfo& op_;
  const ShapeEnv& shapes_;
  FinalizerMode mode_;
  std::vector<ConcreteTensor> tensors_;
};

}  // namespace megartp::test
