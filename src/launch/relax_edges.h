// Captured CUDA graphs with their false edges taken out.
//
// A stream orders kernels that share nothing. From what each kernel is declared to read and write, relax_edges keeps
// the order of those pairs alone that need one, and the prover looks at the result. Kernels are known by function and
// addresses, never by their position in the capture: a kernel that somebody puts in between, or an order of issue that
// changes, does not move a declaration to another kernel. A kernel without declaration keeps every order that the
// capture gave it.
//
// Called by whoever captures graphs of others' kernels. Needs no GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megartp/error.h"
#include "verify/launch/launch_graph.h"

namespace megartp {

// The edges that `graph` needs, in place of graph.edges: each pair of nodes that graph.edges orders (through any path)
// and that touch a byte which one of them writes, less what longer paths imply. Nodes with is_inspected = false count
// as touching everything. Edges are full; with `allow_programmatic`, and where they were programmatic before, they are
// programmatic if the prover allows it. The graph has passed check_graph. kInvalidArgument when the graph given has a
// race already.
Result<std::vector<launch::Edge>> relax_edges(const launch::Graph& graph, bool allow_programmatic = false);

struct CapturedNode {
  launch::NodeKind kind = launch::NodeKind::kKernel;
  std::string function;             // mangled or not, as in the declarations
  std::vector<uint64_t> addresses;  // of its pointer parameters, in order
};
struct CapturedGraph {
  std::vector<CapturedNode> nodes;  // in any order
  std::vector<launch::Edge> edges;  // between nodes by index, without cycles
};

struct DeclaredAccess {
  uint32_t param = 0;  // index in CapturedNode::addresses
  uint64_t offset = 0, num_bytes = 0;
  bool is_write = false;
  bool before_wait = false;
  launch::Means means = launch::Means::kGeneric;
};
// Holds for every launch of the function, whatever its addresses.
struct KernelDeclaration {
  std::string function;
  std::vector<DeclaredAccess> accesses;
  launch::Waits waits = launch::Waits::kNone;
  launch::Trigger trigger = launch::Trigger::kNone;
};

// "function(0x10,0x20)"; the second launch with the same addresses "function(0x10,0x20)#2".
struct KeyedEdge {
  std::string from, to;
  launch::EdgeKind kind = launch::EdgeKind::kFull;
  friend bool operator==(const KeyedEdge&, const KeyedEdge&) = default;
  friend auto operator<=>(const KeyedEdge&, const KeyedEdge&) = default;
};
struct Rewrite {
  std::vector<launch::Edge> edges;      // all edges of the new graph, between nodes of the captured one
  std::vector<KeyedEdge> keyed;         // the same by identity, sorted
  std::vector<std::string> undeclared;  // identities of the nodes that kept their order
};
// kInvalidArgument: edges that are no graph, an access to a parameter that the node does not have, or a race.
Result<Rewrite> relax_capture(const CapturedGraph& captured, std::span<const KernelDeclaration> declarations,
                              bool allow_programmatic = false);

}  // namespace megartp
