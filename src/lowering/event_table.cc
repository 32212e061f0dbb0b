#include "lowering/event_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::lowering {
namespace {

bool add_signal(Task& task, uint32_t event, uint32_t increment, uint8_t publication) {
  if (task.num_signals == abi::kMaxSignals) return false;
  // By publication, then by event: a task sends its publications in ascending order.
  size_t at = task.num_signals++;
  for (; at > 0 && abi::publication(task.signals[at - 1]) > publication; --at) task.signals[at] = task.signals[at - 1];
  task.signals[at] = abi::make_signal(event, increment, publication);
  return true;
}

}  // namespace

uint32_t EventTable::get(uint32_t stage, uint8_t publication, SetId set, uint32_t consumer_stage) {
  const uint64_t hash = hash_combine(hash_combine(stage, publication), set);
  const uint32_t found = table_.find(hash, [&](uint32_t i) {
    return entries_[i].stage == stage && entries_[i].publication == publication && entries_[i].set == set;
  });
  if (found != IndexTable::kNone) return found;
  const uint32_t event = size();
  entries_.push_back({stage, publication, set, consumer_stage});
  table_.insert(hash, event);
  return event;
}

Result<std::vector<uint32_t>> EventTable::assign_signals(TaskGraph& graph, std::span<const StageUnits> stages,
                                                         const UnitSets& sets) const {
  std::vector<uint32_t> overflowing;
  std::vector<uint32_t> increments;  // per join group of the event's stage
  std::vector<uint32_t> touched;
  for (uint32_t event = 0; event < size(); ++event) {
    const Entry& entry = entries_[event];
    const StageUnits& units = stages[entry.stage];
    Task* const tasks = graph.tasks.data() + graph.stages[entry.stage].first_task;
    bool fits = true;
    if (!units.is_fused) {
      for (const UnitInterval& interval : sets.intervals(entry.set))
        for (uint32_t u = interval.begin; u < interval.end; ++u)
          fits &= add_signal(tasks[u], event, 1, entry.publication);
    } else {
      const StageGroups& groups = units.groups;
      increments.resize(std::max(increments.size(), groups.tile_offsets.size()), 0);
      touched.clear();
      for (const UnitInterval& interval : sets.intervals(entry.set))
        for (uint32_t u = interval.begin; u < interval.end; ++u)
          if (increments[groups.group_of_final[u]]++ == 0) touched.push_back(groups.group_of_final[u]);
      for (const uint32_t group : touched) {
        if (increments[group] > abi::kMaxIncrement)
          return make_error(ErrorCode::kOutOfResources,
                            fmt::format("stage '{}': a join group has {} final tiles, at most {} fit",
                                        graph.stages[entry.stage].stage->name, increments[group], abi::kMaxIncrement));
        for (uint32_t i = groups.tile_offsets[group]; i < groups.tile_offsets[group + 1]; ++i)
          fits &= add_signal(tasks[groups.tiles[i]], event, increments[group], entry.publication);
        increments[group] = 0;
      }
    }
    if (!fits) overflowing.push_back(entry.stage);
  }
  std::ranges::sort(overflowing);
  overflowing.erase(std::ranges::unique(overflowing).begin(), overflowing.end());
  return overflowing;
}

}  // namespace megartp::lowering
