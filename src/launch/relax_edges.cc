#include "launch/relax_edges.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/launch/launch_order.h"
#include "verify/launch/launch_prover.h"

namespace megartp {
namespace {

using launch::Edge;
using launch::EdgeKind;

// Which nodes a path leads to each node from. Edges go forward.
class Paths {
 public:
  Paths(size_t num_nodes, const std::vector<Edge>& edges)
      : words_(num_nodes / 64 + 1), rows_(num_nodes * words_, 0), sources_(num_nodes) {
    for (const Edge& e : edges) sources_[e.to].push_back(e.from);
    for (uint32_t n = 0; n < num_nodes; ++n)
      for (const uint32_t s : sources_[n]) {
        rows_[n * words_ + s / 64] |= uint64_t{1} << (s % 64);
        for (size_t w = 0; w < words_; ++w) rows_[n * words_ + w] |= rows_[s * words_ + w];
      }
  }
  bool has(uint32_t from, uint32_t to) const { return (rows_[to * words_ + from / 64] >> (from % 64) & 1) != 0; }
  // A path of two or more edges.
  bool has_detour(uint32_t from, uint32_t to) const {
    return std::ranges::any_of(sources_[to], [&](uint32_t s) { return s != from && has(from, s); });
  }

 private:
  size_t words_;
  std::vector<uint64_t> rows_;
  std::vector<std::vector<uint32_t>> sources_;
};

tl::unexpected<Error> refused(const launch::Graph& graph, const launch::Proof& proof, std::string_view what) {
  Error error{ErrorCode::kInvalidArgument, std::string(what)};
  for (const launch::Finding& f : proof.findings)
    if (f.severity == launch::Severity::kError) error.details += launch::finding_text(graph, f);
  return tl::unexpected(std::move(error));
}

std::vector<Edge> needed_edges(const launch::Graph& graph) {
  const Paths given(graph.nodes.size(), graph.edges);
  std::vector<Edge> edges;
  for (const launch::Conflict& c : launch::find_conflicts(graph)) edges.push_back({c.first, c.second});
  for (uint32_t a = 0; a < graph.nodes.size(); ++a)
    for (uint32_t b = a + 1; b < graph.nodes.size(); ++b)
      if (!graph.nodes[a].is_inspected || !graph.nodes[b].is_inspected) edges.push_back({a, b});
  const auto ends = [](const Edge& e) { return std::pair(e.from, e.to); };
  std::ranges::sort(edges, {}, ends);
  const auto repeated = std::ranges::unique(edges, {}, ends);
  edges.erase(repeated.begin(), repeated.end());
  std::erase_if(edges, [&](const Edge& e) { return !given.has(e.from, e.to); });
  const Paths paths(graph.nodes.size(), edges);
  std::erase_if(edges, [&](const Edge& e) { return paths.has_detour(e.from, e.to); });
  return edges;
}

}  // namespace

Result<std::vector<Edge>> relax_edges(const launch::Graph& graph, bool allow_programmatic) {
  if (const launch::Proof proof = launch::prove(graph); !proof.is_ok())
    return refused(graph, proof, "the graph has a race before any edge is relaxed");
  launch::Graph relaxed = graph;
  relaxed.edges = needed_edges(graph);
  const auto proves = [&] { return launch::prove(relaxed, {.max_explained = 0, .max_flips = 0}).is_ok(); };
  for (Edge& e : relaxed.edges) {
    const bool was_loose = std::ranges::any_of(
        graph.edges, [&](const Edge& g) { return g.from == e.from && g.to == e.to && g.kind != EdgeKind::kFull; });
    const launch::Node& from = relaxed.nodes[e.from];
    const launch::Node& to = relaxed.nodes[e.to];
    const bool are_kernels = from.kind == launch::NodeKind::kKernel && to.kind == launch::NodeKind::kKernel;
    // Nothing is known of what an uninspected kernel shares with what its consumer touches early.
    const bool are_known = from.is_inspected && to.is_inspected;
    if (!(allow_programmatic || was_loose) || !are_kernels || !are_known || !launch::waits_always(to)) continue;
    e.kind = EdgeKind::kProgrammatic;
    if (!proves()) e.kind = EdgeKind::kFull;
  }
  if (const launch::Proof proof = launch::prove(relaxed); !proof.is_ok())
    return refused(relaxed, proof, "the relaxed graph does not prove");
  return relaxed.edges;
}

}  // namespace megartp
