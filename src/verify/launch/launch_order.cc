#include "verify/launch/launch_order.h"

#include <algorithm>
#include <tuple>

namespace megartp::launch {

Order::Order(const Graph& graph) : words_((2 * graph.nodes.size() + 63) / 64) {
  for (Rows* rows : {&start_, &post_, &visible_, &global_start_, &global_post_})
    rows->assign(words_ * graph.nodes.size(), 0);
  std::vector<std::vector<const Edge*>> in(graph.nodes.size());
  for (const Edge& e : graph.edges) in[e.to].push_back(&e);
  for (uint32_t k = 0; k < graph.nodes.size(); ++k) {
    for (const Edge* e : in[k]) enter(graph, *e);
    add(visible_, k, global_start_, k);
    add(post_, k, start_, k);
    add(global_post_, k, global_start_, k);
    if (graph.nodes[k].waits == Waits::kNone) continue;
    for (const Edge* e : in[k])
      if (is_waited_for(e->kind)) wait_for(graph, *e);
  }
}

// What the edge orders before the consumer's start.
void Order::enter(const Graph& graph, const Edge& edge) {
  const auto [y, k, kind] = edge;
  const Node& from = graph.nodes[y];
  switch (kind) {
    case EdgeKind::kFull:
      for (Rows* rows : {&start_, &global_start_}) {
        set(*rows, y, Moment::kFired, k);
        set(*rows, y, Moment::kComplete, k);
        add(*rows, k, waits_always(from) ? post_ : start_, y);
      }
      break;
    case EdgeKind::kProgrammatic:
      set(start_, y, Moment::kFired, k);
      add(start_, k, triggers_after_wait(from) ? post_ : start_, y);
      add(global_start_, k, triggers_after_wait(from) ? global_post_ : global_start_, y);
      if (has_release(from, graph.nodes[k])) {
        set(visible_, y, Moment::kFired, k);
        add(visible_, k, triggers_after_wait(from) ? post_ : visible_, y);
      }
      break;
    case EdgeKind::kBlockStart:
    case EdgeKind::kLaunchCompletion:
      add(start_, k, start_, y);
      add(global_start_, k, global_start_, y);
      break;
  }
}

// What the consumer's wait adds.
void Order::wait_for(const Graph& graph, const Edge& edge) {
  const auto [y, k, kind] = edge;
  const bool waits = waits_always(graph.nodes[y]);
  set(post_, y, Moment::kFired, k);
  set(post_, y, Moment::kComplete, k);
  add(post_, k, waits ? post_ : start_, y);
  add(global_post_, k, waits ? global_post_ : global_start_, y);
}

std::optional<Gap> find_gap(const Graph& graph, const Order& order, uint32_t first, const Access& a, uint32_t second,
                            const Access& b) {
  const Node& x = graph.nodes[first];
  const Node& k = graph.nodes[second];
  const bool early = is_early(k, b);
  const bool fired_is_enough = a.is_write ? is_published(x, a, k, b) : is_done_at_trigger(x, a);
  const auto holds = [&](auto before) {
    return before(Moment::kComplete) || (fired_is_enough && before(Moment::kFired));
  };
  if (!holds(
          [&](Moment m) { return early ? order.before_start(first, m, second) : order.before_post(first, m, second); }))
    return Gap::kTime;
  // After a wait, whatever is complete can be seen; before it only what a full edge or a release has passed on.
  if (a.is_write && !b.is_write && early && !holds([&](Moment m) { return order.visible_at_start(first, m, second); }))
    return Gap::kVisibility;
  return std::nullopt;
}

std::vector<Conflict> find_conflicts(const Graph& graph) {
  struct Span {
    uint64_t begin, end;
    uint32_t node, access;
    bool is_write;
  };
  std::vector<std::vector<Span>> spans(graph.buffers.size());
  for (uint32_t n = 0; n < graph.nodes.size(); ++n)
    for (uint32_t i = 0; i < graph.nodes[n].accesses.size(); ++i) {
      const Access& a = graph.nodes[n].accesses[i];
      spans[a.buffer].push_back({a.begin, a.end, n, i, a.is_write});
    }
  std::vector<Conflict> out;
  for (std::vector<Span>& list : spans) {
    // Nothing that is only read can conflict; weights are most of what many nodes share.
    if (std::ranges::none_of(list, &Span::is_write)) continue;
    std::ranges::sort(list, {}, &Span::begin);
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < list.size() && list[j].begin < list[i].end; ++j) {
        const Span& p = list[i].node < list[j].node ? list[i] : list[j];
        const Span& q = list[i].node < list[j].node ? list[j] : list[i];
        if (p.node == q.node || !(p.is_write || q.is_write)) continue;
        out.push_back({p.node, p.access, q.node, q.access, std::max(p.begin, q.begin), std::min(p.end, q.end)});
      }
  }
  std::ranges::sort(out, {},
                    [](const Conflict& c) { return std::tuple(c.second, c.first, c.second_access, c.first_access); });
  return out;
}

}  // namespace megartp::launch
