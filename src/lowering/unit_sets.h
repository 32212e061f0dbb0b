// UnitSets: interned sets of publishing units.
//
// A unit is what an event counts: a tile of a plain stage, a final tile of a fused one; numbers are local to the stage.
// A set is a sorted list of disjoint, non-adjacent intervals, so "all 128 tiles" costs one. Equal sets have equal ids:
// that is how consumers that need the same units come to share one event.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowering/index_table.h"
#include "lowering/task_graph.h"

namespace megartp::lowering {

using SetId = uint32_t;
inline constexpr SetId kEmptySet = 0;

class UnitSets {
 public:
  UnitSets() { intern({}); }

  // Units in any order, duplicates allowed; sorts `units` in place.
  SetId intern_units(std::vector<uint32_t>& units);
  // Intervals in any order, overlapping or not; sorts them in place.
  SetId intern_intervals(std::vector<UnitInterval>& intervals);
  SetId all(uint32_t num_units);
  SetId unite(SetId a, SetId b);
  SetId unite_all(std::span<const SetId> sets);
  bool contains(SetId outer, SetId inner) const;

  std::span<const UnitInterval> intervals(SetId set) const {
    return std::span(intervals_).subspan(sets_[set].first, sets_[set].count);
  }
  uint32_t size(SetId set) const { return sets_[set].num_units; }

 private:
  struct Set {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t num_units = 0;
  };
  // Sorted, disjoint, non-adjacent intervals.
  SetId intern(std::span<const UnitInterval> intervals);

  std::vector<UnitInterval> intervals_;
  std::vector<Set> sets_;
  std::vector<UnitInterval> scratch_;
  IndexTable table_;
};

}  // namespace megartp::lowering
