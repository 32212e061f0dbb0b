#include "lowering/links.h"

#include <algorithm>

namespace megartp::lowering {
namespace {

constexpr uint64_t kWorkPerItem = 64;
constexpr uint64_t kFreeWork = uint64_t{1} << 16;

uint64_t volume(const Box& box) {
  uint64_t v = 1;
  for (uint32_t d = 0; d < box.rank; ++d) v *= static_cast<uint64_t>(box.end[d] - box.begin[d]);
  return v;
}
Box intersect(Box a, const Box& b) {
  for (uint32_t d = 0; d < a.rank; ++d) {
    a.begin[d] = std::max(a.begin[d], b.begin[d]);
    a.end[d] = std::min(a.end[d], b.end[d]);
  }
  return a;
}

uint64_t hash_range(const CellRange& range) {
  uint64_t hash = range.empty ? 1 : 0;
  for (uint32_t d = 0; d < kMaxRank; ++d) hash = hash_combine(hash, uint64_t{range.begin[d]} << 32 | range.end[d]);
  return hash;
}

class Resolver {
 public:
  Resolver(const AccessTable& producer, const StageUnits& units, UnitSets& sets)
      : table_(producer), units_(units), sets_(sets) {}

  struct Answer {
    CellRange range;
    SetId set = kEmptySet;
    uint32_t only_box = IndexTable::kNone;  // the one box that overlaps, if it is just one
  };

  // nullptr when the work exceeds the limit.
  const Answer* ask(const Box& query, uint64_t max_work) {
    const CellRange range = table_.index().cells(query);
    if (last_ != IndexTable::kNone && answers_[last_].range == range) return &answers_[last_];
    const uint64_t hash = hash_range(range);
    last_ = known_.find(hash, [&](uint32_t i) { return answers_[i].range == range; });
    if (last_ != IndexTable::kNone) return &answers_[last_];
    Answer answer{range, kEmptySet, IndexTable::kNone};
    if (!enumerate(answer, max_work)) return nullptr;
    last_ = static_cast<uint32_t>(answers_.size());
    answers_.push_back(answer);
    known_.insert(hash, last_);
    return &answers_[last_];
  }

 private:
  bool enumerate(Answer& answer, uint64_t max_work) {
    boxes_.clear();
    if (!table_.index().find(answer.range, boxes_, work_, max_work)) return false;
    std::ranges::sort(boxes_);
    boxes_.erase(std::ranges::unique(boxes_).begin(), boxes_.end());
    if (boxes_.size() == 1) answer.only_box = boxes_[0];
    touched_units_.clear();
    for (const uint32_t box : boxes_) {
      const auto begin = table_.touchers.begin() + table_.toucher_offsets[box];
      touched_units_.insert(touched_units_.end(), begin, table_.touchers.begin() + table_.toucher_offsets[box + 1]);
      if (work_ + touched_units_.size() > max_work) return false;
    }
    if (units_.is_fused && !expand_groups(max_work)) return false;
    work_ += touched_units_.size();
    answer.set = sets_.intern_units(touched_units_);
    return true;
  }

  // The last arriver of a group runs its final tiles and then sends for all of them: who waits for one waits for all.
  bool expand_groups(uint64_t max_work) {
    const StageGroups& g = units_.groups;
    groups_.clear();
    for (const uint32_t toucher : touched_units_)
      groups_.push_back(table_.toucher == Toucher::kGroup ? toucher : g.group_of_final[toucher]);
    std::ranges::sort(groups_);
    groups_.erase(std::ranges::unique(groups_).begin(), groups_.end());
    touched_units_.clear();
    for (const uint32_t group : groups_) {
      touched_units_.insert(touched_units_.end(), g.finals.begin() + g.final_offsets[group],
                            g.finals.begin() + g.final_offsets[group + 1]);
      if (work_ + touched_units_.size() > max_work) return false;
    }
    return true;
  }

  const AccessTable& table_;
  const StageUnits& units_;
  UnitSets& sets_;
  std::vector<Answer> answers_;
  IndexTable known_;
  uint32_t last_ = IndexTable::kNone;
  uint64_t work_ = 0;
  std::vector<uint32_t> boxes_;
  std::vector<uint32_t> touched_units_;
  std::vector<uint32_t> groups_;
};

}  // namespace

Link resolve_link(const HistoryEntry& producer, const StageUnits& units, const AccessTable& consumer, bool is_partial,
                  UnitSets& sets) {
  const AccessTable& table = *producer.table;
  Link link{.producer = producer, .set_of_box = {}, .events = {}};
  link.hazard = !table.is_write ? HazardKind::kWar : consumer.is_write ? HazardKind::kWaw : HazardKind::kRaw;
  const uint64_t max_work =
      kFreeWork + kWorkPerItem * (table.boxes.size() + table.touchers.size() + units.num_units + consumer.boxes.size());
  Resolver resolver(table, units, sets);
  link.set_of_box.reserve(consumer.boxes.size());
  bool all_equal = true;
  bool several = false;
  for (const Box& box : consumer.boxes) {
    const Resolver::Answer* answer = resolver.ask(box, max_work);
    if (answer == nullptr) {
      link.gave_up = true;
      link.policy = EdgePolicy::kWhole;
      link.set_of_box.assign(consumer.boxes.size(), sets.all(units.num_units));
      return link;
    }
    link.set_of_box.push_back(answer->set);
    if (answer->set == kEmptySet) continue;
    several = several || sets.size(answer->set) > 1;
    all_equal = all_equal && sets.size(answer->set) == 1 && answer->only_box != IndexTable::kNone &&
                table.boxes[answer->only_box] == box;
  }
  if (table.is_scatter || consumer.is_scatter)
    link.policy = EdgePolicy::kWhole;
  else if (is_partial && several)
    link.policy = EdgePolicy::kTileReduce;
  else
    link.policy = all_equal ? EdgePolicy::kTileEqual : EdgePolicy::kTileCover;
  return link;
}

bool is_superseded(const AccessTable& earlier, std::span<const AccessTable* const> writes) {
  uint64_t items = earlier.boxes.size();
  for (const AccessTable* w : writes) items += w->boxes.size();
  const uint64_t max_work = kFreeWork + kWorkPerItem * items;
  uint64_t work = 0;
  // Boxes of one table are disjoint, so their volumes add up; those of two tables (publications, tiles and final tiles)
  // may overlap, so each table must cover a box by itself.
  std::vector<bool> covered(earlier.boxes.size());
  std::vector<uint64_t> missing;
  std::vector<uint32_t> found;
  for (const AccessTable* w : writes) {
    missing.clear();
    for (const Box& box : earlier.boxes) missing.push_back(volume(box));
    for (const Box& box : w->boxes) {
      found.clear();
      if (!earlier.index().find(earlier.index().cells(box), found, work, max_work)) return false;
      std::ranges::sort(found);
      found.erase(std::ranges::unique(found).begin(), found.end());
      for (const uint32_t i : found) {
        const uint64_t common = volume(intersect(earlier.boxes[i], box));
        if (common == volume(earlier.boxes[i]))
          missing[i] = 0;
        else if (!w->is_scatter)
          missing[i] -= std::min(missing[i], common);
      }
    }
    for (size_t i = 0; i < missing.size(); ++i) covered[i] = covered[i] || missing[i] == 0;
  }
  return std::ranges::all_of(covered, [](bool c) { return c; });
}

}  // namespace megartp::lowering
