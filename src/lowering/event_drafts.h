// EventDrafts: which events the need lists turn into, before they are fitted to what an instruction holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowering/lower.h"
#include "lowering/need_lists.h"

namespace megartp::lowering {

struct EventDraft {
  std::vector<Need> parts;  // of different stages: the units that the event counts; empty for one of relays
  uint32_t num_relays = 0;  // signals that relay tasks add to those of the parts
};

struct EventDrafts {
  std::vector<EventDraft> events;
  std::vector<uint32_t> wait_offsets{0};  // CSR list -> events; `wait_counts` of them count
  std::vector<uint32_t> waits;
  std::vector<uint32_t> wait_counts;

  std::span<uint32_t> waits_of(ListId list) { return std::span(waits).subspan(wait_offsets[list], wait_counts[list]); }
  std::span<const uint32_t> waits_of(ListId list) const {
    return std::span(waits).subspan(wait_offsets[list], wait_counts[list]);
  }
  void end_list() {
    wait_counts.push_back(static_cast<uint32_t>(waits.size()) - wait_offsets.back());
    wait_offsets.push_back(static_cast<uint32_t>(waits.size()));
  }
};

// One event per distinct need.
EventDrafts draft_events(const Dependencies& dependencies);

// One event a task to wait for and one to signal, wherever the edges of a producer's fork or a consumer's join stand
// alone: the events are then the connected components of "unit u must precede task t". For regular partitions these are
// the groups of the gcd, fork-LCM and join-LCM rules of MPK, whatever the extents. Where forks and joins mesh (a task
// would have to wait for itself or for strangers) the needs stay as they are.
EventDrafts draft_gcd_events(Dependencies& dependencies);

// Merges events that the same lists wait for, if all these lists have more events than `max_waits`: fewer waits, nobody
// waits longer.
void merge_events_of_long_lists(EventDrafts& drafts, uint32_t max_waits);

// Signals, relay tasks, task ids: writes everything into the graph. Errors (kOutOfResources): increments or tasks
// beyond what an instruction holds.
Status fit_events(TaskGraph& graph, Dependencies& dependencies, EventDrafts& drafts, const EventOptions& options);

}  // namespace megartp::lowering
