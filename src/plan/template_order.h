// OrderCheck: does leaving out tiles lose an order that the tiles that stay need?
//
// A task graph keeps no wait that other waits imply, so task c may be ordered after task a only through b. When a
// smaller shape leaves b out, a and c must still be ordered:
//
//   a -> b -> c    and also    a -> b' -> c    b' stays: fine, the usual case (b and b' are tiles of one stage)
//   a -> b -> c    and nothing else            b goes: lost
//
// The check walks events, not pairs of tasks. It may refuse where the lost order was not needed; it never accepts where
// it was.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lowering/task_graph.h"

namespace megartp::plan {

// How many tiles, join groups and final tiles of a stage a shape has.
struct StageCounts {
  uint32_t tiles = 0;
  uint32_t groups = 0;
  uint32_t finals = 0;
  uint32_t units() const { return groups == 0 ? tiles : finals; }
  uint32_t nodes() const { return groups == 0 ? tiles : groups; }
  friend bool operator==(const StageCounts&, const StageCounts&) = default;
};

class OrderCheck {
 public:
  OrderCheck() = default;
  // `group_of_final` per stage (empty for plain ones), groups local to the stage.
  OrderCheck(const TaskGraph& graph, std::span<const std::vector<uint32_t>> group_of_final);

  // Memory that find_lost reuses.
  struct Scratch {
    std::vector<uint8_t> dead;           // events that no task that stays comes before
    std::vector<uint32_t> event_stamp;   // == stamp: expanded in this search
    std::vector<uint32_t> node_stamp;    // == stamp: visited
    std::vector<uint32_t> wanted_stamp;  // == stamp: must be found
    std::vector<uint32_t> stack;
    uint32_t stamp = 0;
  };
  // An event whose waiting tasks would no longer be ordered after all tasks that stay and came before it; none if all
  // is well. Totals and consumers are those of the smaller shape, by event.
  std::optional<uint32_t> find_lost(std::span<const StageCounts> counts, std::span<const uint32_t> totals,
                                    std::span<const uint8_t> has_consumer, Scratch& scratch) const;

 private:
  // What an event counts of one task or join group (a node).
  struct Source {
    uint32_t node = 0;
    uint32_t first_unit = 0;  // least of the node's units that the event counts
  };
  std::span<const Source> sources(uint32_t event) const {
    return std::span(sources_).subspan(source_offsets_[event], source_offsets_[event + 1] - source_offsets_[event]);
  }
  std::span<const uint32_t> waits(uint32_t node) const {
    return std::span(waits_).subspan(wait_offsets_[node], wait_offsets_[node + 1] - wait_offsets_[node]);
  }
  bool stays(uint32_t node, std::span<const StageCounts> counts) const {
    const uint32_t s = node_stage_[node];
    return node - first_node_[s] < counts[s].nodes();
  }
  bool signals(const Source& source, std::span<const StageCounts> counts) const {
    return source.first_unit < counts[node_stage_[source.node]].units();
  }
  void add_nodes(const TaskGraph& graph);
  void add_sources(const TaskGraph& graph, std::span<const std::vector<uint32_t>> group_of_final);
  void sort_events(const TaskGraph& graph);
  bool is_covered(uint32_t event, std::span<const StageCounts> counts, Scratch& scratch) const;

  std::vector<uint32_t> first_node_;  // by stage, one more at the end
  std::vector<uint32_t> node_stage_;
  std::vector<uint32_t> wait_offsets_, waits_;  // CSR node -> events that it waits for
  std::vector<uint32_t> source_offsets_;        // CSR event -> nodes
  std::vector<Source> sources_;
  std::vector<uint8_t> is_uniform_;  // by event: all its nodes wait for the same events
  std::vector<uint32_t> totals_;     // by event, of the largest shape
  std::vector<uint32_t> order_;      // events, so that what a node waits for stands before what it signals
};

}  // namespace megartp::plan
