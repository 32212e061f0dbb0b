#include "lowering/unit_sets.h"

#include <algorithm>

namespace megartp::lowering {

SetId UnitSets::intern(std::span<const UnitInterval> intervals) {
  uint64_t hash = intervals.size();
  uint32_t num_units = 0;
  for (const UnitInterval& i : intervals) {
    hash = hash_combine(hash, uint64_t{i.begin} << 32 | i.end);
    num_units += i.end - i.begin;
  }
  const auto equals = [&](uint32_t id) { return std::ranges::equal(this->intervals(id), intervals); };
  if (const SetId id = table_.find(hash, equals); id != IndexTable::kNone) return id;
  const auto id = static_cast<SetId>(sets_.size());
  sets_.push_back({static_cast<uint32_t>(intervals_.size()), static_cast<uint32_t>(intervals.size()), num_units});
  intervals_.insert(intervals_.end(), intervals.begin(), intervals.end());
  table_.insert(hash, id);
  return id;
}

SetId UnitSets::intern_units(std::vector<uint32_t>& units) {
  if (!std::ranges::is_sorted(units)) std::ranges::sort(units);
  scratch_.clear();
  for (const uint32_t unit : units) {
    if (!scratch_.empty() && unit <= scratch_.back().end)
      scratch_.back().end = std::max(scratch_.back().end, unit + 1);
    else
      scratch_.push_back({unit, unit + 1});
  }
  return intern(scratch_);
}

SetId UnitSets::intern_intervals(std::vector<UnitInterval>& intervals) {
  std::ranges::sort(intervals, {}, &UnitInterval::begin);
  scratch_.clear();
  for (const UnitInterval& next : intervals) {
    if (!scratch_.empty() && next.begin <= scratch_.back().end)
      scratch_.back().end = std::max(scratch_.back().end, next.end);
    else
      scratch_.push_back(next);
  }
  return intern(scratch_);
}

SetId UnitSets::all(uint32_t num_units) {
  if (num_units == 0) return kEmptySet;
  const UnitInterval whole{0, num_units};
  return intern({&whole, 1});
}

SetId UnitSets::unite(SetId a, SetId b) {
  if (a == b || b == kEmptySet) return a;
  if (a == kEmptySet) return b;
  scratch_.clear();
  auto x = intervals(a);
  auto y = intervals(b);
  while (!x.empty() || !y.empty()) {
    auto& from = y.empty() || (!x.empty() && x.front().begin <= y.front().begin) ? x : y;
    const UnitInterval next = from.front();
    from = from.subspan(1);
    if (!scratch_.empty() && next.begin <= scratch_.back().end)
      scratch_.back().end = std::max(scratch_.back().end, next.end);
    else
      scratch_.push_back(next);
  }
  return intern(scratch_);
}

SetId UnitSets::unite_all(std::span<const SetId> sets) {
  if (sets.empty()) return kEmptySet;
  if (sets.size() == 1) return sets[0];
  if (sets.size() == 2) return unite(sets[0], sets[1]);
  std::vector<UnitInterval> all;
  for (const SetId set : sets) {
    const auto more = intervals(set);
    all.insert(all.end(), more.begin(), more.end());
  }
  return intern_intervals(all);
}

bool UnitSets::contains(SetId outer, SetId inner) const {
  if (outer == inner) return true;
  auto o = intervals(outer);
  for (const UnitInterval& i : intervals(inner)) {
    while (!o.empty() && o.front().end < i.end) o = o.subspan(1);
    if (o.empty() || o.front().begin > i.begin) return false;
  }
  return true;
}

}  // namespace megartp::lowering
