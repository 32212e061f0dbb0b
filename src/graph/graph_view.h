// GraphView: an OpGraph as nodes and edges to draw.
//
// Called by the DOT and the Mermaid writer, so that both show the same picture:
//   - a node per op, per tensor that the caller binds (argument, weight, state), per output, and per result that nobody
//   uses;
//   - an edge per def-use. A use comes from the tensor's last writer in program order (its producer, or the last op
//   that updated it
//     in place), and from the tensor's own node before any op has written it;
//   - an edge from each op that updates a state in place back to the state's node.
// Invariant: edges name nodes by index; nodes stand in id order, ops after the leaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megartp/op_graph.h"

namespace megartp {

enum class NodeKind : uint8_t { kRuntimeArg, kWeight, kState, kOp, kOutput, kUnused };

struct ViewNode {
  NodeKind kind = NodeKind::kOp;
  std::vector<std::string> lines;  // of the label, unescaped
};

enum class EdgeKind : uint8_t {
  kUse,        // the target reads the tensor
  kInPlace,    // the target reads the tensor and writes it in place
  kWriteBack,  // the target is the state that the source updates
};

struct ViewEdge {
  uint32_t source = 0;
  uint32_t target = 0;
  EdgeKind kind = EdgeKind::kUse;
  std::vector<std::string> lines;
};

struct GraphView {
  std::vector<ViewNode> nodes;
  std::vector<ViewEdge> edges;
};

GraphView make_view(const OpGraph& graph);

}  // namespace megartp
