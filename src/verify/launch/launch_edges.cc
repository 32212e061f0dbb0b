#include "verify/launch/launch_edges.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/launch/launch_story.h"

namespace megartp::launch {
namespace {

constexpr size_t kMaxNamed = 3;  // accesses named in a line
// Trying an edge the other way looks at every conflict anew; about a second in all.
constexpr size_t kMaxFlipWork = size_t{1} << 26;

class EdgeProver {
 public:
  EdgeProver(const Graph& graph, const std::vector<Conflict>& hazards, size_t max_flips)
      : graph_(graph), hazards_(hazards), conflicts_(find_conflicts(graph)) {
    const size_t words = 5 * ((2 * graph.nodes.size() + 63) / 64);
    flips_ =
        std::min(max_flips, kMaxFlipWork / (conflicts_.size() + words * (graph.edges.size() + graph.nodes.size()) + 1));
  }

  std::vector<EdgeProof> run() {
    std::vector<EdgeProof> out;
    for (uint32_t e = 0; e < graph_.edges.size(); ++e)
      out.push_back(graph_.edges[e].kind == EdgeKind::kFull ? full(e) : loose(e));
    return out;
  }

 private:
  const std::string& name(uint32_t n) const { return graph_.nodes[n].name; }

  // The hazards of the graph with the edge of another kind, or nothing when no more flips are allowed.
  std::optional<std::vector<Conflict>> hazards_with(uint32_t e, EdgeKind kind) {
    if (flips_ == 0) return std::nullopt;
    --flips_;
    Graph trial = graph_;
    trial.edges[e].kind = kind;
    const Order order(trial);
    std::vector<Conflict> out;
    for (const Conflict& c : conflicts_)
      if (find_gap(trial, order, c.first, access(c.first, c.first_access), c.second, access(c.second, c.second_access)))
        out.push_back(c);
    return out;
  }
  const Access& access(uint32_t n, uint32_t i) const { return graph_.nodes[n].accesses[i]; }

  std::string conflict_text(const Conflict& c) const {
    const Access& b = access(c.second, c.second_access);
    return fmt::format("{} {} {}", name(c.second), access_text(graph_, b, c.begin, c.end),
                       is_early(graph_.nodes[c.second], b) ? "before its wait" : "after its wait");
  }
  // The first that `list` has and `without` has not; both are in the same order.
  static const Conflict* first_new(const std::vector<Conflict>& list, const std::vector<Conflict>& without) {
    const auto key = [](const Conflict& c) { return std::tuple(c.second, c.first, c.second_access, c.first_access); };
    for (const Conflict& c : list)
      if (std::ranges::none_of(without, [&](const Conflict& o) { return key(o) == key(c); })) return &c;
    return nullptr;
  }

  EdgeProof full(uint32_t e) {
    const Edge& edge = graph_.edges[e];
    for (const uint32_t n : {edge.from, edge.to})
      if (graph_.nodes[n].kind != NodeKind::kKernel)
        return {e, true,
                fmt::format("full, because {} is a {} and only kernels have programmatic edges", name(n),
                            to_string(graph_.nodes[n].kind))};
    if (!graph_.nodes[edge.to].is_inspected)
      return {e, true, fmt::format("full, because nobody has read the code of {}", name(edge.to))};
    const auto other = hazards_with(e, EdgeKind::kProgrammatic);
    if (!other) return {e, true, "full, as declared"};
    if (const Conflict* c = first_new(*other, hazards_); c != nullptr)
      return {
          e, true,
          fmt::format("full, because through a programmatic edge {} could run while {} still {} it", conflict_text(*c),
                      name(c->first), access(c->first, c->first_access).is_write ? "writes" : "reads")};
    return {e, true, "full, although a programmatic edge would be as safe: " + reason(edge)};
  }

  EdgeProof loose(uint32_t e) {
    const Edge& edge = graph_.edges[e];
    const std::string_view kind = to_string(edge.kind);
    for (const uint32_t n : {edge.from, edge.to})
      if (graph_.nodes[n].kind != NodeKind::kKernel)
        return {e, false,
                fmt::format("{}, which is refused: {} is a {}", kind, name(n), to_string(graph_.nodes[n].kind))};
    if (!hazards_.empty()) {
      const auto other = hazards_with(e, EdgeKind::kFull);
      const Conflict* c = other ? first_new(hazards_, *other) : nullptr;
      if (!other)
        for (const Conflict& h : hazards_)
          if (h.second == edge.to) c = &h;
      if (c != nullptr)
        return {e, false,
                fmt::format("{}, which is refused: {} while {} may still {} it", kind, conflict_text(*c),
                            name(c->first), access(c->first, c->first_access).is_write ? "have to write" : "read")};
    }
    return {e, true, fmt::format("{}, because {}", kind, reason(edge))};
  }

  // Why the consumer may start before the producer is complete.
  std::string reason(const Edge& edge) const {
    const Node& to = graph_.nodes[edge.to];
    std::string shared, early;
    size_t num_shared = 0, num_early = 0;
    for (const Conflict& c : std::ranges::equal_range(conflicts_, edge.to, {}, &Conflict::second)) {
      const Access& b = access(c.second, c.second_access);
      if (is_early(to, b)) {
        if (++num_early <= kMaxNamed)
          early += fmt::format("{}{} of {}", early.empty() ? "" : ", ", range_text(graph_, b.buffer, c.begin, c.end),
                               name(c.first));
      } else if (c.first == edge.from && ++num_shared <= kMaxNamed) {
        shared += fmt::format("{}{}", shared.empty() ? "" : ", ", access_text(graph_, b, c.begin, c.end));
      }
    }
    const auto more = [](size_t count) {
      return count > kMaxNamed ? fmt::format(" and {} more", count - kMaxNamed) : std::string();
    };
    std::string text;
    if (to.waits == Waits::kNone)
      text = fmt::format("{} has no wait and shares no written bytes with {}", to.name, name(edge.from));
    else if (num_shared != 0)
      text = fmt::format("{} waits{} before it {}{}", to.name, waits_always(to) ? " in every CTA" : "", shared,
                         more(num_shared));
    else
      text = fmt::format("{} shares no written bytes with {}, and passes its completion on by waiting", to.name,
                         name(edge.from));
    if (num_early != 0)
      return text + fmt::format("; what it touches before that ({}{}) is over and visible when it starts", early,
                                more(num_early));
    const bool reads_early = std::ranges::any_of(to.accesses, [&](const Access& a) { return is_early(to, a); });
    if (to.waits != Waits::kNone)
      text += reads_early ? "; what it touches before that, no earlier node writes or reads in conflict"
                          : "; it touches nothing before that";
    return text;
  }

  const Graph& graph_;
  const std::vector<Conflict>& hazards_;
  size_t flips_ = 0;
  std::vector<Conflict> conflicts_;
};

}  // namespace

std::vector<EdgeProof> prove_edges(const Graph& graph, const std::vector<Conflict>& hazards, size_t max_flips) {
  return EdgeProver(graph, hazards, max_flips).run();
}

}  // namespace megartp::launch
