#include "plan/template_order.h"

#include <algorithm>
#include <numeric>

namespace megartp::plan {

OrderCheck::OrderCheck(const TaskGraph& graph, std::span<const std::vector<uint32_t>> group_of_final) {
  add_nodes(graph);
  add_sources(graph, group_of_final);
  sort_events(graph);
  for (const Event& e : graph.events) totals_.push_back(e.threshold);
}

void OrderCheck::add_nodes(const TaskGraph& graph) {
  first_node_.push_back(0);
  uint32_t first_group = 0;
  std::vector<std::vector<uint32_t>> node_waits;
  for (uint32_t s = 0; s < graph.stages.size(); ++s) {
    const TaskStage& stage = graph.stages[s];
    const bool is_fused = stage.stage->num_join_groups != 0;
    const uint32_t count = is_fused ? stage.stage->num_join_groups : stage.stage->num_tiles;
    node_waits.assign(count, {});
    for (uint32_t t = 0; t < stage.stage->num_tiles; ++t) {
      const Task& task = graph.tasks[stage.first_task + t];
      auto& list = node_waits[is_fused ? task.join_group - first_group : t];
      for (uint32_t w = 0; w < task.num_waits; ++w) list.push_back(task.waits[w].event);
    }
    first_group += stage.stage->num_join_groups;
    for (auto& list : node_waits) {
      std::ranges::sort(list);
      list.erase(std::ranges::unique(list).begin(), list.end());
      wait_offsets_.push_back(static_cast<uint32_t>(waits_.size()));
      waits_.insert(waits_.end(), list.begin(), list.end());
      node_stage_.push_back(s);
    }
    first_node_.push_back(first_node_.back() + count);
  }
  wait_offsets_.push_back(static_cast<uint32_t>(waits_.size()));
}

void OrderCheck::add_sources(const TaskGraph& graph, std::span<const std::vector<uint32_t>> group_of_final) {
  for (const Event& event : graph.events) {
    source_offsets_.push_back(static_cast<uint32_t>(sources_.size()));
    const size_t first = sources_.size();
    for (uint32_t p = event.first_part; p < event.first_part + event.num_parts; ++p) {
      const EventPart& part = graph.event_parts[p];
      const auto& groups = group_of_final[part.stage];
      for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i)
        for (uint32_t u = graph.unit_intervals[i].begin; u < graph.unit_intervals[i].end; ++u)
          sources_.push_back({first_node_[part.stage] + (groups.empty() ? u : groups[u]), u});
    }
    // One entry a node, with its least unit.
    const auto begin = sources_.begin() + static_cast<ptrdiff_t>(first);
    std::sort(begin, sources_.end(), [](const Source& a, const Source& b) {
      return a.node != b.node ? a.node < b.node : a.first_unit < b.first_unit;
    });
    sources_.erase(
        std::unique(begin, sources_.end(), [](const Source& a, const Source& b) { return a.node == b.node; }),
        sources_.end());
    bool uniform = true;
    for (size_t i = first + 1; i < sources_.size(); ++i)
      uniform = uniform && std::ranges::equal(waits(sources_[first].node), waits(sources_[i].node));
    is_uniform_.push_back(uniform ? 1 : 0);
  }
  source_offsets_.push_back(static_cast<uint32_t>(sources_.size()));
}

void OrderCheck::sort_events(const TaskGraph& graph) {
  // A node waits for events of earlier stages only.
  std::vector<uint32_t> last_stage;
  for (const Event& event : graph.events) {
    uint32_t last = 0;
    for (uint32_t p = event.first_part; p < event.first_part + event.num_parts; ++p)
      last = std::max(last, graph.event_parts[p].stage);
    last_stage.push_back(last);
  }
  order_.resize(graph.events.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::ranges::stable_sort(order_, {}, [&](uint32_t e) { return last_stage[e]; });
}

std::optional<uint32_t> OrderCheck::find_lost(std::span<const StageCounts> counts, std::span<const uint32_t> totals,
                                              std::span<const uint8_t> has_consumer, Scratch& scratch) const {
  scratch.dead.assign(totals_.size(), 0);
  for (const uint32_t event : order_) {
    if (totals[event] == totals_[event]) continue;  // all of it stays
    bool any_signals = false;
    bool group_without_signal = false;  // its tiles stay, but none of its final tiles that the event counts
    bool may_lose = false;
    for (const Source& source : sources(event)) {
      if (signals(source, counts)) {
        any_signals = true;
      } else if (stays(source.node, counts)) {
        group_without_signal = may_lose = true;
      } else {
        for (const uint32_t w : waits(source.node)) may_lose = may_lose || scratch.dead[w] == 0;
      }
    }
    scratch.dead[event] = !any_signals && !may_lose ? 1 : 0;
    if (!may_lose || has_consumer[event] == 0) continue;
    // What goes waits for what a node that stays waits for too.
    if (is_uniform_[event] != 0 && any_signals && !group_without_signal) continue;
    if (!is_covered(event, counts, scratch)) return event;
  }
  return std::nullopt;
}

bool OrderCheck::is_covered(uint32_t event, std::span<const StageCounts> counts, Scratch& s) const {
  s.event_stamp.resize(totals_.size());
  s.node_stamp.resize(node_stage_.size());
  s.wanted_stamp.resize(node_stage_.size());
  // Back from the nodes that no longer signal, through those that go: the first ones that stay must be found again.
  uint32_t num_wanted = 0;
  uint32_t least_wanted = ~0U;
  uint32_t stamp = ++s.stamp;
  const auto visit_lost = [&](uint32_t node) {
    if (s.node_stamp[node] == stamp) return;
    s.node_stamp[node] = stamp;
    if (!stays(node, counts)) {
      s.stack.push_back(node);
    } else {
      s.wanted_stamp[node] = stamp;
      ++num_wanted;
      least_wanted = std::min(least_wanted, node);
    }
  };
  s.stack.clear();
  for (const Source& source : sources(event))
    if (!signals(source, counts)) visit_lost(source.node);
  while (!s.stack.empty()) {
    const uint32_t node = s.stack.back();
    s.stack.pop_back();
    for (const uint32_t w : waits(node)) {
      if (s.dead[w] != 0 || s.event_stamp[w] == stamp) continue;
      s.event_stamp[w] = stamp;
      for (const Source& source : sources(w)) visit_lost(source.node);
    }
  }
  // Back from the nodes that still signal, through those that stay. Nodes are numbered in stage order, so nothing
  // before the least wanted one leads there.
  const uint32_t wanted = stamp;
  stamp = ++s.stamp;
  const auto visit_kept = [&](const Source& source) {
    if (!signals(source, counts) || source.node < least_wanted || s.node_stamp[source.node] == stamp) return;
    s.node_stamp[source.node] = stamp;
    if (s.wanted_stamp[source.node] == wanted) --num_wanted;
    s.stack.push_back(source.node);
  };
  for (const Source& source : sources(event)) visit_kept(source);
  while (!s.stack.empty() && num_wanted != 0) {
    const uint32_t node = s.stack.back();
    s.stack.pop_back();
    for (const uint32_t w : waits(node)) {
      if (s.event_stamp[w] == stamp) continue;
      s.event_stamp[w] = stamp;
      for (const Source& source : sources(w)) visit_kept(source);
    }
  }
  return num_wanted == 0;
}

}  // namespace megartp::plan
