// draft_gcd_events: one wait and one signal a task, as MPK's task descriptors have them.
#include <algorithm>
#include <numeric>

#include "lowering/event_drafts.h"

namespace megartp::lowering {
namespace {

class DisjointSets {
 public:
  explicit DisjointSets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0U); }
  uint32_t find(uint32_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void unite(uint32_t a, uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<uint32_t> parent_;
};

class GcdGrouping {
 public:
  explicit GcdGrouping(Dependencies& d) : d_(d), num_stages_(static_cast<uint32_t>(d.units.size())) {
    first_unit_.reserve(num_stages_ + 1);
    first_unit_.push_back(0);
    for (const StageUnits& u : d.units) first_unit_.push_back(first_unit_.back() + u.num_units);
  }

  EventDrafts run() {
    find_stars();
    group_units();
    return draft();
  }

 private:
  // --- stages -------------------------------------------------------------------------------------------------------
  // Node s is what stage s signals, node num_stages + s what it waits for. A component is a fork (one producer), a join
  // (one consumer), or a mesh, in which grouping could make a task wait for itself.
  void find_stars() {
    DisjointSets nodes(size_t{2} * num_stages_);
    std::vector<bool> signals(num_stages_, false);
    std::vector<bool> waits(num_stages_, false);
    for (ListId list = 1; list < d_.lists.size(); ++list)
      for (const Need& need : d_.lists.needs(list)) {
        const uint32_t consumer = d_.lists.consumer_stage(list);
        nodes.unite(need.stage, num_stages_ + consumer);
        signals[need.stage] = waits[consumer] = true;
      }
    std::vector<uint32_t> num_producers(size_t{2} * num_stages_, 0);
    std::vector<uint32_t> num_consumers(size_t{2} * num_stages_, 0);
    for (uint32_t s = 0; s < num_stages_; ++s) {
      if (signals[s]) ++num_producers[nodes.find(s)];
      if (waits[s]) ++num_consumers[nodes.find(num_stages_ + s)];
    }
    is_star_.assign(num_stages_, false);
    for (uint32_t s = 0; s < num_stages_; ++s) {
      const uint32_t root = nodes.find(num_stages_ + s);
      is_star_[s] = waits[s] && (num_producers[root] == 1 || num_consumers[root] == 1);
    }
  }

  bool is_grouped(ListId list) const { return is_star_[d_.lists.consumer_stage(list)]; }

  // --- units --------------------------------------------------------------------------------------------------------
  void group_units() {
    const uint32_t num_units = first_unit_.back();
    DisjointSets groups(num_units);
    is_used_.assign(num_units, false);
    publication_.assign(num_stages_, 0);
    // skip[u]: the first unit from u on that is not yet joined to the one after it, so that nested ranges cost little.
    DisjointSets skip(size_t{num_units} + 1);
    for (ListId list = 1; list < d_.lists.size(); ++list) {
      if (!is_grouped(list)) continue;
      uint32_t any = IndexTable::kNone;
      for (const Need& need : d_.lists.needs(list)) {
        publication_[need.stage] = std::max(publication_[need.stage], need.publication);
        for (const UnitInterval& interval : d_.sets.intervals(need.set)) {
          const uint32_t begin = first_unit_[need.stage] + interval.begin;
          const uint32_t end = first_unit_[need.stage] + interval.end;
          for (uint32_t u = skip.find(begin); u + 1 < end; u = skip.find(u)) {
            is_used_[u] = true;
            groups.unite(u, u + 1);
            skip.unite(u, u + 1);
          }
          is_used_[end - 1] = true;
          if (any != IndexTable::kNone) groups.unite(any, begin);
          any = begin;
        }
      }
    }
    group_.resize(num_units);
    for (uint32_t u = 0; u < num_units; ++u) group_[u] = groups.find(u);
  }

  EventDrafts draft() {
    EventDrafts out;
    std::vector<uint32_t> event_of_group(group_.size(), IndexTable::kNone);
    IndexTable table;
    std::vector<Need> exact;  // by event: the need that it stands for, in meshes
    for (ListId list = 0; list < d_.lists.size(); ++list) {
      const std::span<const Need> needs = d_.lists.needs(list);
      if (!needs.empty() && is_grouped(list)) {
        const uint32_t unit = first_unit_[needs[0].stage] + d_.sets.intervals(needs[0].set)[0].begin;
        uint32_t& event = event_of_group[group_[unit]];
        if (event == IndexTable::kNone) {
          event = static_cast<uint32_t>(out.events.size());
          out.events.emplace_back();
          exact.emplace_back();
        }
        out.waits.push_back(event);
      } else {
        for (const Need& need : needs) {
          const uint64_t hash = hash_combine(hash_combine(need.stage, need.publication), need.set);
          uint32_t event = table.find(hash, [&](uint32_t e) { return exact[e] == need; });
          if (event == IndexTable::kNone) {
            event = static_cast<uint32_t>(out.events.size());
            out.events.push_back({{need}, 0});
            exact.push_back(need);
            table.insert(hash, event);
          }
          out.waits.push_back(event);
        }
      }
      out.end_list();
    }
    add_parts(out, event_of_group);
    return out;
  }

  void add_parts(EventDrafts& out, const std::vector<uint32_t>& event_of_group) {
    std::vector<std::vector<uint32_t>> units(out.events.size());
    std::vector<uint32_t> touched;
    for (uint32_t s = 0; s < num_stages_; ++s) {
      touched.clear();
      for (uint32_t u = first_unit_[s]; u < first_unit_[s + 1]; ++u) {
        if (!is_used_[u]) continue;
        const uint32_t event = event_of_group[group_[u]];
        if (units[event].empty()) touched.push_back(event);
        units[event].push_back(u - first_unit_[s]);
      }
      for (const uint32_t event : touched) {
        out.events[event].parts.push_back({s, publication_[s], d_.sets.intern_units(units[event])});
        units[event].clear();
      }
    }
  }

  Dependencies& d_;
  uint32_t num_stages_;
  std::vector<uint32_t> first_unit_;   // by stage
  std::vector<bool> is_star_;          // by consumer stage
  std::vector<bool> is_used_;          // by unit: some grouped list needs it
  std::vector<uint32_t> group_;        // by unit
  std::vector<uint32_t> publication_;  // by stage: what its units send when they signal their one event
};

}  // namespace

EventDrafts draft_gcd_events(Dependencies& dependencies) { return GcdGrouping(dependencies).run(); }

}  // namespace megartp::lowering
