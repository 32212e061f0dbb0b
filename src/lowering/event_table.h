// EventTable: events by (producer stage, publication, unit set), and the signals that follow from them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowering/links.h"

namespace megartp::lowering {

class EventTable {
 public:
  // The event of that key, made on first use. `consumer_stage` is remembered for the first one that asks.
  uint32_t get(uint32_t stage, uint8_t publication, SetId set, uint32_t consumer_stage);

  struct Entry {
    uint32_t stage = 0;
    uint8_t publication = 0;
    SetId set = kEmptySet;
    uint32_t first_consumer_stage = 0;
  };
  const Entry& operator[](uint32_t event) const { return entries_[event]; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

  // Gives every unit's task its signals. Returns the stages where a task would need more than an instruction holds (the
  // tasks are then incomplete). All tasks of a join group get the same signals, worth one increment per final tile.
  Result<std::vector<uint32_t>> assign_signals(TaskGraph& graph, std::span<const StageUnits> stages,
                                               const UnitSets& sets) const;

 private:
  std::vector<Entry> entries_;
  IndexTable table_;
};

}  // namespace megartp::lowering
