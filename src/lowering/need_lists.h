// NeedLists: what tasks must wait for, before it is turned into events.
//
// A need is a set of units of one earlier stage that must have sent a publication. Tasks of one stage that need the
// same share one list, so a pass over lists costs what is distinct, not what is repeated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowering/index_table.h"
#include "lowering/links.h"
#include "lowering/unit_sets.h"

namespace megartp::lowering {

struct Need {
  uint32_t stage = 0;
  uint32_t publication = 0;
  SetId set = kEmptySet;
  friend bool operator==(const Need&, const Need&) = default;
};

using ListId = uint32_t;
inline constexpr ListId kEmptyList = 0;

class NeedLists {
 public:
  NeedLists() : lists_(1) {}

  // Ids ascend with the consumer stage when stages come in order.
  ListId intern(uint32_t consumer_stage, std::span<const Need> needs);

  std::span<const Need> needs(ListId list) const {
    return std::span(needs_).subspan(lists_[list].first, lists_[list].count);
  }
  // Passes edit lists in place; a list may only shrink.
  std::span<Need> needs(ListId list) { return std::span(needs_).subspan(lists_[list].first, lists_[list].count); }
  void shrink(ListId list, uint32_t count) { lists_[list].count = count; }
  uint32_t consumer_stage(ListId list) const { return lists_[list].stage; }
  uint32_t size() const { return static_cast<uint32_t>(lists_.size()); }

 private:
  struct List {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t stage = 0;
  };
  std::vector<List> lists_;
  std::vector<Need> needs_;
  IndexTable table_;
};

// An edge before events exist: which lists rely on which needs over one tensor.
struct EdgeUse {
  ListId list = kEmptyList;
  Need need;
};
struct EdgeDraft {
  StageEdge edge;
  std::vector<EdgeUse> uses;
};

// What the regions of all stages demand.
struct Dependencies {
  UnitSets sets;
  std::vector<StageUnits> units;  // by stage
  NeedLists lists;
  std::vector<ListId> list_of_task;
  std::vector<EdgeDraft> edges;
};

// Calls visit(task) for the tasks that unit `unit` of `stage` consists of: the tile itself, or all tiles of the join
// group that a final tile belongs to.
template <class Visit>
void for_each_task_of_unit(const TaskGraph& graph, const StageUnits& units, uint32_t stage, uint32_t unit,
                           const Visit& visit) {
  const uint32_t first = graph.stages[stage].first_task;
  if (!units.is_fused) return visit(first + unit);
  const StageGroups& g = units.groups;
  const uint32_t group = g.group_of_final[unit];
  for (uint32_t i = g.tile_offsets[group]; i < g.tile_offsets[group + 1]; ++i) visit(first + g.tiles[i]);
}

// From the regions that tiles read and write: RAW, WAR and WAW against every earlier stage.
Result<Dependencies> find_dependencies(const TaskGraph& graph);

// Drops needs that other needs of the same list imply through the tasks that they wait for. Never changes what comes
// before what. Linear: gives up (keeps the rest) where proving more would take longer.
void drop_implied_needs(const TaskGraph& graph, Dependencies& dependencies);

// Every need becomes one for the whole stage.
void make_barriers(Dependencies& dependencies);

}  // namespace megartp::lowering
