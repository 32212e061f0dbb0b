#include "lowering/event_drafts.h"

#include <algorithm>

namespace megartp::lowering {

EventDrafts draft_events(const Dependencies& d) {
  EventDrafts out;
  IndexTable table;
  for (ListId list = 0; list < d.lists.size(); ++list) {
    for (const Need& need : d.lists.needs(list)) {
      const uint64_t hash = hash_combine(hash_combine(need.stage, need.publication), need.set);
      uint32_t event = table.find(hash, [&](uint32_t e) { return out.events[e].parts[0] == need; });
      if (event == IndexTable::kNone) {
        event = static_cast<uint32_t>(out.events.size());
        out.events.push_back({{need}, 0});
        table.insert(hash, event);
      }
      out.waits.push_back(event);
    }
    out.end_list();
  }
  return out;
}

void make_barriers(Dependencies& d) {
  for (ListId list = 1; list < d.lists.size(); ++list)
    for (Need& need : d.lists.needs(list)) need.set = d.sets.all(d.units[need.stage].num_units);
}

void merge_events_of_long_lists(EventDrafts& drafts, uint32_t max_waits) {
  const size_t num_lists = drafts.wait_counts.size();
  if (std::ranges::none_of(drafts.wait_counts, [&](uint32_t n) { return n > max_waits; })) return;
  // CSR event -> lists.
  std::vector<uint32_t> offsets(drafts.events.size() + 1, 0);
  for (ListId list = 0; list < num_lists; ++list)
    for (const uint32_t e : drafts.waits_of(list)) ++offsets[e + 1];
  for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  std::vector<uint32_t> lists(offsets.back());
  std::vector<uint32_t> next(offsets.begin(), offsets.end() - 1);
  for (ListId list = 0; list < num_lists; ++list)
    for (const uint32_t e : drafts.waits_of(list)) lists[next[e]++] = list;
  const auto lists_of = [&](uint32_t e) {
    return std::span<const uint32_t>(lists).subspan(offsets[e], offsets[e + 1] - offsets[e]);
  };

  IndexTable table;
  std::vector<uint32_t> into(drafts.events.size());
  for (uint32_t e = 0; e < drafts.events.size(); ++e) {
    into[e] = e;
    if (!std::ranges::all_of(lists_of(e), [&](uint32_t l) { return drafts.wait_counts[l] > max_waits; })) continue;
    uint64_t hash = 0;
    for (const uint32_t list : lists_of(e)) hash = hash_combine(hash, list);
    const auto can_take = [&](uint32_t other) {
      if (!std::ranges::equal(lists_of(other), lists_of(e))) return false;
      // A unit signals an event once.
      for (const Need& a : drafts.events[other].parts)
        for (const Need& b : drafts.events[e].parts)
          if (a.stage == b.stage) return false;
      return true;
    };
    if (const uint32_t other = table.find(hash, can_take); other != IndexTable::kNone) {
      into[e] = other;
      drafts.events[other].parts.insert(drafts.events[other].parts.end(), drafts.events[e].parts.begin(),
                                        drafts.events[e].parts.end());
    } else {
      table.insert(hash, e);
    }
  }
  // Renumber, in order.
  std::vector<uint32_t> id(drafts.events.size(), 0);
  uint32_t count = 0;
  for (uint32_t e = 0; e < drafts.events.size(); ++e) {
    if (into[e] != e) continue;
    id[e] = count;
    if (count != e) drafts.events[count] = std::move(drafts.events[e]);
    ++count;
  }
  drafts.events.resize(count);
  for (ListId list = 0; list < num_lists; ++list) {
    const std::span<uint32_t> waits = drafts.waits_of(list);
    uint32_t kept = 0;
    for (const uint32_t e : waits) {
      const uint32_t merged = id[into[e]];
      if (std::find(waits.begin(), waits.begin() + kept, merged) == waits.begin() + kept) waits[kept++] = merged;
    }
    drafts.wait_counts[list] = kept;
  }
}

}  // namespace megartp::lowering
