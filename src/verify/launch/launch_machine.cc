#include "verify/launch/launch_machine.h"

#include <algorithm>

namespace megartp::launch {
namespace {

constexpr StepKind kGroups[] = {StepKind::kEarlyFenced, StepKind::kEarly, StepKind::kPostFenced, StepKind::kPost};

}  // namespace

Machine::Machine(const Graph& graph, uint32_t max_ctas)
    : graph_(graph),
      conflicts_(find_conflicts(graph)),
      in_(graph.nodes.size()),
      groups_(graph.nodes.size(), 0),
      group_of_(graph.nodes.size()) {
  for (const Edge& e : graph.edges) in_[e.to].push_back(e);
  first_cta_.push_back(0);
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const uint32_t ctas = node.kind == NodeKind::kKernel ? std::min(node.grid, max_ctas) : 1;
    first_cta_.push_back(first_cta_.back() + ctas);
    for (const Access& a : node.accesses) {
      const bool early = is_early(node, a);
      const StepKind group = early ? (a.before_trigger ? StepKind::kEarlyFenced : StepKind::kEarly)
                                   : (a.before_trigger ? StepKind::kPostFenced : StepKind::kPost);
      group_of_[n].push_back(group);
      groups_[n] |= bit(group);
      tracks_sight_ |= early && !a.is_write && !in_[n].empty();
    }
  }
}

Machine::State Machine::initial() const {
  State s;
  s.ctas.assign(first_cta_.back(), 0);
  for (auto* masks : {&s.seen, &s.message, &s.snapshot}) masks->assign(graph_.nodes.size(), 0);
  return s;
}

bool Machine::all_ctas(const State& s, uint32_t node, uint16_t any_of) const {
  for (uint32_t c = first_cta_[node]; c < first_cta_[node + 1]; ++c)
    if ((s.ctas[c] & any_of) == 0) return false;
  return true;
}

bool Machine::has_fired(const State& s, uint32_t node) const {
  return all_ctas(s, node, bit(StepKind::kTrigger) | bit(StepKind::kExit));
}

bool Machine::can_start(const State& s, uint32_t node) const {
  return std::ranges::all_of(in_[node], [&](const Edge& e) {
    switch (e.kind) {
      case EdgeKind::kFull: return (s.complete >> e.from & 1) != 0;
      case EdgeKind::kProgrammatic: return has_fired(s, e.from);
      case EdgeKind::kBlockStart:
      case EdgeKind::kLaunchCompletion: return all_ctas(s, e.from, bit(StepKind::kStart));
    }
    return false;
  });
}

bool Machine::can_wait(const State& s, uint32_t node) const {
  return std::ranges::all_of(in_[node], [&](const Edge& e) {
    return e.kind == EdgeKind::kLaunchCompletion || e.kind == EdgeKind::kFull || (s.complete >> e.from & 1) != 0;
  });
}

bool Machine::has_decided(uint16_t done, uint32_t node) const {
  if (graph_.nodes[node].waits == Waits::kNone) return true;
  return (done & (bit(StepKind::kWait) | bit(StepKind::kSkipWait))) != 0;
}

bool Machine::can_exit(uint16_t done, uint32_t node) const {
  if (!has_decided(done, node)) return false;
  if (graph_.nodes[node].trigger != Trigger::kNone && (done & bit(StepKind::kTrigger)) == 0) return false;
  uint16_t needed = groups_[node];
  if ((done & bit(StepKind::kSkipWait)) != 0)
    needed &= static_cast<uint16_t>(~(bit(StepKind::kPost) | bit(StepKind::kPostFenced)));
  return (done & needed) == needed;
}

bool Machine::can(const State& s, const Move& m) const {
  const uint16_t done = s.ctas[m.cta];
  const Node& node = graph_.nodes[m.node];
  if (m.kind == StepKind::kComplete)
    return (s.complete >> m.node & 1) == 0 && all_ctas(s, m.node, bit(StepKind::kExit));
  if ((done & bit(m.kind)) != 0) return false;
  if (m.kind == StepKind::kStart) return can_start(s, m.node);
  if ((done & bit(StepKind::kStart)) == 0) return false;
  const bool waited = (done & bit(StepKind::kWait)) != 0, skipped = (done & bit(StepKind::kSkipWait)) != 0;
  switch (m.kind) {
    case StepKind::kEarlyFenced:
    case StepKind::kEarly: return (groups_[m.node] & bit(m.kind)) != 0;
    case StepKind::kPostFenced:
    case StepKind::kPost: return (groups_[m.node] & bit(m.kind)) != 0 && waited;
    case StepKind::kWait: return node.waits != Waits::kNone && !skipped && can_wait(s, m.node);
    case StepKind::kSkipWait: return node.waits == Waits::kSome && !waited;
    case StepKind::kTrigger: {
      if (node.trigger == Trigger::kNone) return false;
      if (node.trigger == Trigger::kAfterWait && !has_decided(done, m.node)) return false;
      uint16_t needed = groups_[m.node] & (bit(StepKind::kEarlyFenced) | bit(StepKind::kPostFenced));
      if (skipped) needed &= static_cast<uint16_t>(~bit(StepKind::kPostFenced));
      return (done & needed) == needed;
    }
    case StepKind::kExit: return can_exit(done, m.node);
    default: return false;
  }
}

uint32_t Machine::over(const State& s) const {
  uint32_t mask = 0;
  for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
    if (has_fired(s, n)) mask |= moment(n, Moment::kFired);
    if ((s.complete >> n & 1) != 0) mask |= moment(n, Moment::kComplete);
  }
  return mask;
}

// The first CTA of a grid starts: what its threads see is settled.
void Machine::start(State& s, uint32_t node) const {
  for (const Edge& e : in_[node])
    if (e.kind == EdgeKind::kFull)
      s.global |= s.snapshot[e.from] | moment(e.from, Moment::kFired) | moment(e.from, Moment::kComplete);
  s.seen[node] = s.global;
  for (const Edge& e : in_[node])
    if (e.kind == EdgeKind::kProgrammatic && has_release(graph_.nodes[e.from], graph_.nodes[node]))
      s.seen[node] |= s.message[e.from] | moment(e.from, Moment::kFired);
}

bool Machine::has_happened(const State& s, uint32_t node, StepKind group) const {
  const bool is_post = group == StepKind::kPost || group == StepKind::kPostFenced;
  const auto any_of =
      static_cast<uint16_t>(bit(group) | bit(StepKind::kExit) | (is_post ? bit(StepKind::kSkipWait) : 0));
  return all_ctas(s, node, any_of);
}

void Machine::touch(const State& s, uint32_t node, StepKind group, std::vector<char>& is_race) const {
  const Node& k = graph_.nodes[node];
  const bool early = group == StepKind::kEarly || group == StepKind::kEarlyFenced;
  for (size_t i = 0; i < conflicts_.size(); ++i) {
    const Conflict& c = conflicts_[i];
    if (c.second != node || group_of_[node][c.second_access] != group || is_race[i] != 0) continue;
    const Node& x = graph_.nodes[c.first];
    const Access& a = x.accesses[c.first_access];
    const Access& b = k.accesses[c.second_access];
    bool ok = false;
    if (!a.is_write) {
      ok = has_happened(s, c.first, group_of_[c.first][c.first_access]);
    } else {
      const bool complete = (s.complete >> c.first & 1) != 0;
      const bool published = is_published(x, a, k, b);
      if (early && !b.is_write)
        ok = (s.seen[node] & moment(c.first, Moment::kComplete)) != 0 ||
             (published && (s.seen[node] & moment(c.first, Moment::kFired)) != 0);
      else
        ok = complete || (published && has_fired(s, c.first));
    }
    if (!ok) is_race[i] = 1;
  }
}

void Machine::apply(State& s, const Move& m, std::vector<char>& is_race) const {
  if (m.kind == StepKind::kComplete) {
    if (tracks_sight_) s.snapshot[m.node] = over(s);
    s.complete |= 1U << m.node;
    return;
  }
  if (m.kind == StepKind::kStart && tracks_sight_ &&
      std::none_of(s.ctas.begin() + first_cta_[m.node], s.ctas.begin() + first_cta_[m.node + 1],
                   [](uint16_t done) { return done != 0; }))
    start(s, m.node);
  if (m.kind == StepKind::kTrigger && tracks_sight_ && graph_.nodes[m.node].fence >= Fence::kGpu)
    s.message[m.node] |= (s.ctas[m.cta] & bit(StepKind::kWait)) != 0 ? over(s) : s.seen[m.node];
  if (std::ranges::find(kGroups, m.kind) != std::end(kGroups)) touch(s, m.node, m.kind, is_race);
  s.ctas[m.cta] |= bit(m.kind);
}

std::vector<Machine::Move> Machine::moves(const State& s) const {
  std::vector<Move> out;
  for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
    if (const Move m{n, first_cta_[n], StepKind::kComplete}; can(s, m)) out.push_back(m);
    for (uint32_t c = first_cta_[n]; c < first_cta_[n + 1]; ++c) {
      if (c > first_cta_[n] && s.ctas[c] == s.ctas[c - 1]) continue;  // alike
      for (uint32_t kind = 0; kind < static_cast<uint32_t>(StepKind::kComplete); ++kind)
        if (const Move m{n, c, static_cast<StepKind>(kind)}; can(s, m)) out.push_back(m);
    }
  }
  return out;
}

// A wait that returns before the trigger lets the fence pass more on.
bool Machine::is_better_later(const State& s, const Move& m) const {
  return m.kind == StepKind::kWait && graph_.nodes[m.node].trigger == Trigger::kBeforeWait &&
         (s.ctas[m.cta] & bit(StepKind::kTrigger)) == 0;
}

void Machine::settle(State& s) const {
  std::vector<char> no_race(conflicts_.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n)
      for (uint32_t c = first_cta_[n]; c < first_cta_[n + 1]; ++c)
        for (const StepKind kind : {StepKind::kStart, StepKind::kTrigger, StepKind::kWait, StepKind::kExit})
          if (const Move m{n, c, kind}; can(s, m) && !is_better_later(s, m)) {
            apply(s, m, no_race);
            moved = true;
          }
  }
}

void Machine::normalise(State& s) const {
  for (uint32_t n = 0; n < graph_.nodes.size(); ++n)
    std::sort(s.ctas.begin() + first_cta_[n], s.ctas.begin() + first_cta_[n + 1]);
}

}  // namespace megartp::launch
