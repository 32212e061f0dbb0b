// What is over when: for every node, the moments of earlier nodes that its start, its accesses after the wait and its
// completion must follow, whatever the timing.
//
// Two moments of a node matter to others: its trigger has fired (every CTA triggered or exited), and it is complete
// (and its memory flushed). One pass over the nodes in reference order with bitsets, O(nodes * edges / 64). In the
// words of docs/launch-graphs.md, D(X, K) is before_start(X, kComplete, K) and C(X, K) is before_post(X, kComplete, K).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/launch/launch_graph.h"

namespace megartp::launch {

enum class Moment : uint8_t { kFired, kComplete };

class Order {
 public:
  explicit Order(const Graph& graph);

  // Before any thread of `node` starts.
  bool before_start(uint32_t earlier, Moment m, uint32_t node) const { return has(start_, earlier, m, node); }
  // Before the first access that follows the wait of `node`.
  bool before_post(uint32_t earlier, Moment m, uint32_t node) const { return has(post_, earlier, m, node); }
  // ... and a thread of `node` sees the memory of it from its start on.
  bool visible_at_start(uint32_t earlier, Moment m, uint32_t node) const { return has(visible_, earlier, m, node); }
  // Neither is complete before the other starts.
  bool may_overlap(uint32_t a, uint32_t b) const {
    return !before_start(a, Moment::kComplete, b) && !before_start(b, Moment::kComplete, a);
  }

 private:
  using Rows = std::vector<uint64_t>;
  bool has(const Rows& rows, uint32_t earlier, Moment m, uint32_t node) const {
    const size_t bit = size_t{2} * earlier + static_cast<size_t>(m);
    return (rows[node * words_ + bit / 64] >> (bit % 64) & 1) != 0;
  }
  void set(Rows& rows, uint32_t earlier, Moment m, uint32_t node) const {
    const size_t bit = size_t{2} * earlier + static_cast<size_t>(m);
    rows[node * words_ + bit / 64] |= uint64_t{1} << (bit % 64);
  }
  void add(Rows& rows, uint32_t node, const Rows& from, uint32_t source) const {
    for (size_t w = 0; w < words_; ++w) rows[node * words_ + w] |= from[source * words_ + w];
  }
  void enter(const Graph& graph, const Edge& edge);
  void wait_for(const Graph& graph, const Edge& edge);

  size_t words_ = 0;
  Rows start_, post_, visible_;
  // Seen by every thread of the device (a full edge lies between), before the node's start and before its post part.
  Rows global_start_, global_post_;
};

// Why two accesses that must not swap may do so: the first may not have happened, or may not be visible yet.
enum class Gap : uint8_t { kTime, kVisibility };
std::optional<Gap> find_gap(const Graph& graph, const Order& order, uint32_t first, const Access& a, uint32_t second,
                            const Access& b);

// Two accesses of different nodes that overlap, one of them a write; `first` stands earlier in the reference order.
struct Conflict {
  uint32_t first = 0, first_access = 0;
  uint32_t second = 0, second_access = 0;
  uint64_t begin = 0, end = 0;
};
std::vector<Conflict> find_conflicts(const Graph& graph);

}  // namespace megartp::launch
