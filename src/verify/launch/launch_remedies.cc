#include "verify/launch/launch_remedies.h"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

namespace megartp::launch {
namespace {

class Search {
 public:
  Search(const Graph& graph, const Conflict& conflict) : graph_(graph), c_(conflict), trial_(graph) {}

  std::vector<Remedy> run() {
    own_access();
    const std::vector<uint32_t> between = nodes_between();
    for (const uint32_t y : between) link(y);
    publish();
    for (const uint32_t y : between)
      if (graph_.nodes[y].kind == NodeKind::kKernel && graph_.nodes[y].trigger != Trigger::kNone &&
          graph_.nodes[y].fence < Fence::kGpu)
        attempt(RemedyKind::kRelease, y,
                fmt::format("{} executes a gpu-scope release fence before its trigger", name(y)),
                [y](Graph& g) { g.nodes[y].fence = Fence::kGpu; });
    edges();
    return std::move(found_);
  }

 private:
  const std::string& name(uint32_t n) const { return graph_.nodes[n].name; }

  template <class Change>
  void attempt(RemedyKind kind, uint32_t node, std::string text, Change change, std::optional<uint32_t> edge = {}) {
    trial_ = graph_;
    change(trial_);
    const Access& a = trial_.nodes[c_.first].accesses[c_.first_access];
    const Access& b = trial_.nodes[c_.second].accesses[c_.second_access];
    if (!find_gap(trial_, Order(trial_), c_.first, a, c_.second, b))
      found_.push_back({kind, node, edge, std::move(text)});
  }

  void own_access() {
    const uint32_t k = c_.second, i = c_.second_access;
    const Node& node = graph_.nodes[k];
    const Access& b = node.accesses[i];
    if (node.kind != NodeKind::kKernel) return;
    switch (early_reason(node, b)) {
      case Early::kNotEarly: break;
      case Early::kLifted:
      case Early::kMerged:
        attempt(RemedyKind::kPlainLoad, k, fmt::format("{} loads it with an ordinary load", name(k)),
                [=](Graph& g) { g.nodes[k].accesses[i].means = Means::kGeneric; });
        break;
      case Early::kNeverWaits:
      case Early::kDeclared:
        if (waits_always(node))
          attempt(RemedyKind::kMovePost, k,
                  fmt::format("{} {} it after its wait", name(k), b.is_write ? "writes" : "reads"),
                  [=](Graph& g) { g.nodes[k].accesses[i].phase = Phase::kPost; });
        else
          attempt(RemedyKind::kWait, k,
                  fmt::format("{} waits, in every CTA, before it {} it", name(k), b.is_write ? "writes" : "reads"),
                  [=](Graph& g) {
                    g.nodes[k].waits = Waits::kAll;
                    g.nodes[k].accesses[i].phase = Phase::kPost;
                  });
    }
  }

  // Ancestors of the second node that descend from the first.
  std::vector<uint32_t> nodes_between() const {
    std::vector<char> after(graph_.nodes.size(), 0), before(graph_.nodes.size(), 0);
    after[c_.first] = before[c_.second] = 1;
    std::vector<const Edge*> edges;
    for (const Edge& e : graph_.edges) edges.push_back(&e);
    std::ranges::sort(edges, {}, [](const Edge* e) { return std::pair(e->from, e->to); });
    for (const Edge* e : edges) after[e->to] |= after[e->from];
    std::ranges::sort(edges, {}, [](const Edge* e) { return std::pair(e->to, e->from); });
    for (const Edge* e : edges | std::views::reverse) before[e->from] |= before[e->to];
    std::vector<uint32_t> out;
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n)
      if (after[n] != 0 && before[n] != 0 && n != c_.first && n != c_.second) out.push_back(n);
    return out;
  }

  void link(uint32_t y) {
    const Node& node = graph_.nodes[y];
    if (node.kind != NodeKind::kKernel) return;
    const size_t before = found_.size();
    if (!waits_always(node))
      attempt(RemedyKind::kWait, y, fmt::format("{} waits in every CTA before it ends", name(y)),
              [y](Graph& g) { g.nodes[y].waits = Waits::kAll; });
    if (node.trigger == Trigger::kBeforeWait)
      attempt(RemedyKind::kTriggerLater, y, fmt::format("{} triggers after its wait", name(y)),
              [y](Graph& g) { g.nodes[y].trigger = Trigger::kAfterWait; });
    const auto wait_then_trigger = [y](Graph& g) {
      g.nodes[y].waits = Waits::kAll;
      if (g.nodes[y].trigger != Trigger::kNone) g.nodes[y].trigger = Trigger::kAfterWait;
    };
    if (found_.size() == before && !triggers_after_wait(node))
      attempt(RemedyKind::kWaitTrigger, y, fmt::format("{} waits in every CTA and triggers after that", name(y)),
              wait_then_trigger);
    if (found_.size() == before && !triggers_after_wait(node))
      attempt(RemedyKind::kPassOn, y,
              fmt::format("{} waits in every CTA, then executes a gpu-scope release fence, then triggers", name(y)),
              [=](Graph& g) {
                wait_then_trigger(g);
                g.nodes[y].trigger = Trigger::kAfterWait;
                g.nodes[y].fence = Fence::kSystem;
              });
  }

  void publish() {
    const uint32_t x = c_.first, i = c_.first_access, k = c_.second;
    const Node& node = graph_.nodes[x];
    if (node.trigger == Trigger::kNone) return;
    const Access& a = node.accesses[i];
    if (a.phase == Phase::kPost && node.trigger == Trigger::kBeforeWait) return;
    std::string text = fmt::format("{} {} it before its trigger", name(x), a.is_write ? "writes" : "reads");
    if (a.is_write) {
      if (a.means == Means::kTma && !node.bulk_drained) text += ", waits until its bulk stores are written";
      text += " and fences in between (gpu-scope release in every writing thread";
      if (a.means != Means::kTma && graph_.nodes[k].accesses[c_.second_access].means == Means::kTma)
        text += ", proxy fence for the TMA access";
      text += ", then a CTA barrier)";
    }
    attempt(RemedyKind::kPublish, x, std::move(text), [=](Graph& g) {
      Node& n = g.nodes[x];
      n.accesses[i].before_trigger = true;
      if (!n.accesses[i].is_write) return;
      n.fence = n.sync_domain == g.nodes[k].sync_domain ? std::max(n.fence, Fence::kGpu) : Fence::kSystem;
      n.proxy_fence = n.bulk_drained = true;
    });
  }

  void edges() {
    for (uint32_t e = 0; e < graph_.edges.size(); ++e) {
      const Edge& edge = graph_.edges[e];
      if (edge.kind == EdgeKind::kFull) continue;
      attempt(
          RemedyKind::kFullEdge, edge.to, fmt::format("the edge {} -> {} is full", name(edge.from), name(edge.to)),
          [e](Graph& g) { g.edges[e].kind = EdgeKind::kFull; }, e);
    }
    const bool is_joined =
        std::ranges::any_of(graph_.edges, [&](const Edge& e) { return e.from == c_.first && e.to == c_.second; });
    if (is_joined) return;
    const bool kernels =
        graph_.nodes[c_.first].kind == NodeKind::kKernel && graph_.nodes[c_.second].kind == NodeKind::kKernel;
    for (const EdgeKind kind : {EdgeKind::kProgrammatic, EdgeKind::kFull}) {
      if (kind == EdgeKind::kProgrammatic && !kernels) continue;
      const size_t before = found_.size();
      attempt(RemedyKind::kNewEdge, c_.second,
              fmt::format("there is a {} edge {} -> {}", to_string(kind), name(c_.first), name(c_.second)),
              [=, this](Graph& g) { g.edges.push_back({c_.first, c_.second, kind}); });
      if (found_.size() != before) break;
    }
  }

  const Graph& graph_;
  const Conflict& c_;
  Graph trial_;
  std::vector<Remedy> found_;
};

}  // namespace

std::vector<Remedy> find_remedies(const Graph& graph, const Conflict& conflict) {
  return Search(graph, conflict).run();
}

}  // namespace megartp::launch
