// Control-flow graph of one kernel's code, one node an instruction.
//
// Built for the scan. Invariant: the graph has every path that the hardware can take (it may have more): calls within
// the section are followed, returns lead to behind every call, indirect branches to the targets that the cubin lists,
// and where none are listed to every instruction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verify/sass/cubin.h"
#include "verify/sass/sass_decode.h"

namespace megartp::sass {

class FlowGraph {
 public:
  // Nodes beyond the instructions; they do nothing.
  enum Hub : uint32_t { kReturns, kAnyFunction, kAnywhere, kNumHubs };

  explicit FlowGraph(const CubinKernel& kernel);

  const std::vector<Instruction>& code() const { return code_; }
  uint32_t num_instructions() const { return static_cast<uint32_t>(code_.size()); }
  uint32_t num_nodes() const { return num_instructions() + kNumHubs; }
  uint32_t entry() const { return entry_; }
  std::span<const uint32_t> successors(uint32_t node) const { return edges(next_, node); }
  std::span<const uint32_t> predecessors(uint32_t node) const { return edges(previous_, node); }
  bool is_reachable(uint32_t node) const { return reachable_[node]; }

  // Reachable instructions whose successors are not known, and calls that leave the section (or may).
  const std::vector<uint32_t>& unknown_flow() const { return unknown_flow_; }
  const std::vector<uint32_t>& unfollowed_calls() const { return unfollowed_calls_; }

  // Edges that close a cycle, in a depth-first walk from the entry: whoever follows the others only comes to an end.
  bool is_back_edge(uint32_t node, size_t successor) const { return back_edges_[next_.begin[node] + successor]; }
  // Reachable nodes, each before its successors, back edges left aside.
  const std::vector<uint32_t>& order() const { return order_; }

 private:
  struct Edges {
    std::vector<uint32_t> begin;  // of each node, and one more
    std::vector<uint32_t> nodes;
  };
  static std::span<const uint32_t> edges(const Edges& e, uint32_t node) {
    return std::span(e.nodes).subspan(e.begin[node], e.begin[node + 1] - e.begin[node]);
  }
  uint32_t hub(Hub h) const { return num_instructions() + h; }
  // Adds a target in bytes; false when it is no instruction of the section.
  bool add_target(std::vector<uint32_t>& out, int64_t offset) const;
  void collect_instruction(const CubinKernel& kernel, uint32_t i, std::vector<uint32_t>& out);
  void collect_hub(const CubinKernel& kernel, Hub h, std::vector<uint32_t>& out) const;
  void collect_reconvergence(uint32_t i, std::vector<uint32_t>& out) const;
  void reverse_edges();
  void walk();

  std::vector<Instruction> code_;
  uint32_t entry_ = 0;
  std::vector<std::vector<int64_t>> reconvergence_;  // targets of BSSY, by barrier register
  Edges next_, previous_;
  std::vector<bool> reachable_, back_edges_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> unknown_flow_, unfollowed_calls_;
};

}  // namespace megartp::sass
