// derive_events: regions -> needs -> events -> waits and signals.
#include <algorithm>
#include <map>

#include "lowering/event_costs.h"
#include "lowering/event_drafts.h"
#include "lowering/passes.h"

namespace megartp::lowering {
namespace {

// Which events carry each edge, and in what shapes.
class EdgeWriter {
 public:
  EdgeWriter(const TaskGraph& graph, const Dependencies& d, const EventDrafts& drafts, EventMode mode)
      : d_(d),
        drafts_(drafts),
        mode_(mode),
        num_tasks_(d.lists.size(), 0),
        consumers_(drafts.events.size(), 0),
        triggers_(drafts.events.size(), 0) {
    for (uint32_t t = 0; t < graph.tasks.size(); ++t) ++num_tasks_[d.list_of_task[t]];
    for (ListId list = 1; list < d.lists.size(); ++list)
      for (const uint32_t e : drafts.waits_of(list)) consumers_[e] += num_tasks_[list];
    for (uint32_t e = 0; e < drafts.events.size(); ++e)
      for (const Need& part : drafts.events[e].parts) triggers_[e] += d.sets.size(part.set);
  }

  StageEdge write(const EdgeDraft& draft) {
    StageEdge edge = draft.edge;
    std::vector<uint32_t> events;
    for (const EdgeUse& use : draft.uses) {
      const uint32_t event = carrier(use);
      if (event != IndexTable::kNone && (events.empty() || events.back() != event)) events.push_back(event);
    }
    std::ranges::sort(events);
    events.erase(std::ranges::unique(events).begin(), events.end());
    edge.num_events = static_cast<uint32_t>(events.size());
    edge.is_implied = events.empty();
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> shapes;
    for (const uint32_t e : events) ++shapes[{triggers_[e], consumers_[e]}];
    for (const auto& [shape, count] : shapes) edge.events.push_back({shape.first, shape.second, count});
    if (mode_ == EventMode::kWhole) edge.policy = EdgePolicy::kWhole;
    return edge;
  }

 private:
  uint32_t carrier(const EdgeUse& use) const {
    for (const uint32_t event : drafts_.waits_of(use.list))
      for (const Need& part : drafts_.events[event].parts)
        if (part.stage == use.need.stage && part.publication >= use.need.publication &&
            d_.sets.contains(part.set, use.need.set))
          return event;
    return IndexTable::kNone;
  }

  const Dependencies& d_;
  const EventDrafts& drafts_;
  EventMode mode_;
  std::vector<uint32_t> num_tasks_;  // by list
  std::vector<uint32_t> consumers_;  // by event, tasks that do work
  std::vector<uint32_t> triggers_;   // by event, units
};

}  // namespace

Status derive_events(TaskGraph& graph, const EventOptions& options) {
  Dependencies d = MEGARTP_TRY(find_dependencies(graph));
  if (options.mode == EventMode::kWhole) make_barriers(d);
  drop_implied_needs(graph, d);
  EventCostModel costs(graph, d, options.costs);
  if (options.mode == EventMode::kAuto) {
    costs.coarsen();
    drop_implied_needs(graph, d);
  }
  EventDrafts drafts = options.mode == EventMode::kGcd ? draft_gcd_events(d) : draft_events(d);
  merge_events_of_long_lists(drafts, options.max_waits);
  EdgeWriter writer(graph, d, drafts, options.mode);
  graph.edges.clear();
  for (const EdgeDraft& draft : d.edges) {
    graph.edges.push_back(writer.write(draft));
    costs.explain(graph.edges.back());
  }
  graph.event_mode = options.mode;
  return fit_events(graph, d, drafts, options);
}

}  // namespace megartp::lowering
