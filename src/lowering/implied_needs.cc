// drop_implied_needs: transitive reduction at the level of tasks.
//
//   U_i -> W_i -> V_i and U_i -> V_i: V_i's wait for U_i is implied, because W_i waits for it.
//   U_i -> W_i -> V_i and all U -> V_i: not implied; W_i knows of U_i alone.
//
// For each need (Q, T) of a list and an earlier stage P that the list also needs, the units of P that everything in T
// has waited for are collected (remembered per (Q, T, P)); needs inside of that set go.
#include <algorithm>
#include <unordered_map>

#include "lowering/need_lists.h"

namespace megartp::lowering {
namespace {

constexpr uint32_t kMaxDepth = 256;    // stages between
constexpr uint64_t kWorkPerTask = 64;  // of the whole graph
constexpr uint64_t kFreeProofWork = 1U << 20;

class Reducer {
 public:
  Reducer(const TaskGraph& graph, Dependencies& d)
      : graph_(graph), d_(d), max_work_(kFreeProofWork + kWorkPerTask * graph.tasks.size()) {}

  void run() {
    for (ListId list = 1; list < d_.lists.size(); ++list)
      if (d_.lists.needs(list).size() > 1) reduce(list);
  }

 private:
  struct Key {
    uint32_t stage;
    SetId set;
    uint32_t ancestor;
    uint32_t publication;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return hash_combine(uint64_t{k.stage} << 32 | k.set, uint64_t{k.ancestor} << 8 | k.publication);
    }
  };

  void reduce(ListId list) {
    const std::span<Need> needs = d_.lists.needs(list);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < needs.size(); ++i)
      if (!is_implied(needs, i, kept)) needs[kept++] = needs[i];
    d_.lists.shrink(list, kept);
  }

  // Needs before `kept` stay, those from i + 1 on are undecided: either way they are waited for, directly or not.
  bool is_implied(std::span<const Need> needs, uint32_t i, uint32_t kept) {
    const Need weak = needs[i];
    covers_.clear();
    for (uint32_t j = 0; j < needs.size(); ++j) {
      if ((j >= kept && j <= i) || needs[j].stage < weak.stage) continue;
      if (needs[j].stage == weak.stage) {
        // A unit sends its publications in ascending order.
        if (needs[j].publication > weak.publication && d_.sets.contains(needs[j].set, weak.set)) return true;
        continue;
      }
      const SetId cover = covered(needs[j].stage, needs[j].set, weak.stage, weak.publication, 0);
      if (cover == kEmptySet) continue;
      if (d_.sets.contains(cover, weak.set)) return true;
      covers_.push_back(cover);
    }
    return covers_.size() > 1 && d_.sets.contains(d_.sets.unite_all(covers_), weak.set);
  }

  // Units of `ancestor` that have sent `publication` once all units of `set` of `stage` have sent anything.
  SetId covered(uint32_t stage, SetId set, uint32_t ancestor, uint32_t publication, uint32_t depth) {
    if (depth > kMaxDepth || work_ > max_work_) return kEmptySet;
    const Key key{stage, set, ancestor, publication};
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    std::vector<SetId> parts;
    for (const ListId list : lists_of(stage, set)) {
      for (const Need& need : d_.lists.needs(list)) {
        ++work_;
        if (need.stage == ancestor && need.publication >= publication) parts.push_back(need.set);
        if (need.stage > ancestor) parts.push_back(covered(need.stage, need.set, ancestor, publication, depth + 1));
      }
    }
    for (const SetId part : parts) work_ += d_.sets.intervals(part).size();
    const SetId cover = d_.sets.unite_all(parts);
    known_.emplace(key, cover);
    return cover;
  }

  // The distinct lists of the tasks that the units consist of. (Copied: the table may grow meanwhile.)
  std::vector<ListId> lists_of(uint32_t stage, SetId set) {
    const Key key{stage, set, 0, 0};
    if (const auto it = lists_of_.find(key); it != lists_of_.end()) return it->second;
    std::vector<ListId> lists;
    const StageUnits& units = d_.units[stage];
    for (const UnitInterval& interval : d_.sets.intervals(set))
      for (uint32_t u = interval.begin; u < interval.end; ++u)
        for_each_task_of_unit(graph_, units, stage, u, [&](uint32_t task) {
          ++work_;
          const ListId list = d_.list_of_task[task];
          if (list != kEmptyList && (lists.empty() || lists.back() != list)) lists.push_back(list);
        });
    std::ranges::sort(lists);
    lists.erase(std::ranges::unique(lists).begin(), lists.end());
    lists_of_.emplace(key, lists);
    return lists;
  }

  const TaskGraph& graph_;
  Dependencies& d_;
  uint64_t work_ = 0;
  uint64_t max_work_;
  std::unordered_map<Key, SetId, KeyHash> known_;
  std::unordered_map<Key, std::vector<ListId>, KeyHash> lists_of_;
  std::vector<SetId> covers_;
};

}  // namespace

void drop_implied_needs(const TaskGraph& graph, Dependencies& dependencies) { Reducer(graph, dependencies).run(); }

}  // namespace megartp::lowering
