// Captured nodes as nodes of a launch graph: identities, and buffers from the addresses that are touched.
#include <algorithm>
#include <map>
#include <queue>

#include <fmt/format.h>

#include "launch/relax_edges.h"

namespace megartp {
namespace {

struct Span {
  uint64_t begin = 0, end = 0;
};

std::string identity(const CapturedNode& node) {
  std::string text = (node.function.empty() ? std::string(launch::to_string(node.kind)) : node.function) + "(";
  for (size_t i = 0; i < node.addresses.size(); ++i)
    text += fmt::format("{}{:#x}", i == 0 ? "" : ",", node.addresses[i]);
  return text + ")";
}

class Capture {
 public:
  Capture(const CapturedGraph& captured, std::span<const KernelDeclaration> declarations) : captured_(captured) {
    for (const KernelDeclaration& d : declarations) declared_[d.function] = &d;
  }

  Result<Rewrite> relax(bool allow_programmatic) {
    MEGARTP_TRY(sort());
    name();
    MEGARTP_TRY(find_spans());
    for (const uint32_t n : order_) add_node(n);
    for (const Edge& e : captured_.edges) graph_.edges.push_back({place_[e.from], place_[e.to], e.kind});
    MEGARTP_TRY(launch::check_graph(graph_));
    Rewrite rewrite;
    for (const Edge& e : MEGARTP_TRY(relax_edges(graph_, allow_programmatic))) {
      rewrite.edges.push_back({order_[e.from], order_[e.to], e.kind});
      rewrite.keyed.push_back({keys_[order_[e.from]], keys_[order_[e.to]], e.kind});
    }
    std::ranges::sort(rewrite.keyed);
    for (const uint32_t n : order_)
      if (declaration(n) == nullptr) rewrite.undeclared.push_back(keys_[n]);
    return rewrite;
  }

 private:
  using Edge = launch::Edge;

  const KernelDeclaration* declaration(uint32_t node) const {
    const auto it = declared_.find(captured_.nodes[node].function);
    return it == declared_.end() ? nullptr : it->second;
  }

  // An order in which edges go forward.
  Status sort() {
    const size_t n = captured_.nodes.size();
    std::vector<std::vector<uint32_t>> next(n);
    std::vector<uint32_t> missing(n, 0);
    for (const Edge& e : captured_.edges) {
      if (e.from >= n || e.to >= n)
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("an edge joins nodes {} and {}, the captured graph has {}", e.from, e.to, n));
      next[e.from].push_back(e.to);
      ++missing[e.to];
    }
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < n; ++i)
      if (missing[i] == 0) ready.push(i);
    place_.resize(n);
    while (!ready.empty()) {
      const uint32_t i = ready.top();
      ready.pop();
      place_[i] = static_cast<uint32_t>(order_.size());
      order_.push_back(i);
      for (const uint32_t to : next[i])
        if (--missing[to] == 0) ready.push(to);
    }
    if (order_.size() != n)
      return make_error(ErrorCode::kInvalidArgument, "the edges of the captured graph make a cycle");
    return {};
  }

  void name() {
    keys_.resize(captured_.nodes.size());
    std::map<std::string, uint32_t> count;
    for (const uint32_t n : order_) {
      const std::string text = identity(captured_.nodes[n]);
      const uint32_t launches = ++count[text];
      keys_[n] = launches == 1 ? text : fmt::format("{}#{}", text, launches);
    }
  }

  // Ranges that touch become one buffer: what overlaps in memory overlaps in the proof, under whatever names.
  Status find_spans() {
    for (const uint32_t n : order_) {
      const KernelDeclaration* d = declaration(n);
      if (d == nullptr) continue;
      for (const DeclaredAccess& a : d->accesses) {
        if (a.param >= captured_.nodes[n].addresses.size())
          return make_error(ErrorCode::kInvalidArgument, fmt::format("'{}' has no pointer parameter {}, of which an "
                                                                     "access is declared",
                                                                     keys_[n], a.param));
        const uint64_t begin = captured_.nodes[n].addresses[a.param] + a.offset;
        if (a.num_bytes == 0 || begin + a.num_bytes < begin)
          return make_error(ErrorCode::kInvalidArgument, fmt::format("'{}': the access to parameter {} has {} bytes",
                                                                     keys_[n], a.param, a.num_bytes));
        spans_.push_back({begin, begin + a.num_bytes});
      }
    }
    std::ranges::sort(spans_, {}, &Span::begin);
    std::vector<Span> joined;
    for (const Span& s : spans_) {
      if (!joined.empty() && s.begin < joined.back().end)
        joined.back().end = std::max(joined.back().end, s.end);
      else
        joined.push_back(s);
    }
    spans_ = std::move(joined);
    for (const Span& s : spans_) graph_.buffers.push_back({fmt::format("{:#x}", s.begin), s.end - s.begin});
    return {};
  }

  void add_node(uint32_t n) {
    launch::Node node;
    node.name = launch::is_plain_name(keys_[n]) ? keys_[n] : fmt::format("node{}", n);
    node.kind = captured_.nodes[n].kind;
    const KernelDeclaration* d = declaration(n);
    node.is_inspected = d != nullptr;
    if (d != nullptr) {
      if (node.kind == launch::NodeKind::kKernel) {
        node.waits = d->waits;
        node.trigger = d->trigger;
      }
      for (const DeclaredAccess& a : d->accesses) {
        const uint64_t begin = captured_.nodes[n].addresses[a.param] + a.offset;
        const auto span = std::prev(std::ranges::upper_bound(spans_, begin, {}, &Span::begin));
        launch::Access access;
        access.buffer = static_cast<uint32_t>(span - spans_.begin());
        access.begin = begin - span->begin;
        access.end = access.begin + a.num_bytes;
        access.is_write = a.is_write;
        access.phase = a.before_wait || node.waits == launch::Waits::kNone ? launch::Phase::kPre : launch::Phase::kPost;
        access.means = a.means;
        node.accesses.push_back(access);
      }
    }
    graph_.nodes.push_back(std::move(node));
  }

  const CapturedGraph& captured_;
  std::map<std::string, const KernelDeclaration*> declared_;
  std::vector<uint32_t> order_, place_;
  std::vector<std::string> keys_;
  std::vector<Span> spans_;
  launch::Graph graph_;
};

}  // namespace

Result<Rewrite> relax_capture(const CapturedGraph& captured, std::span<const KernelDeclaration> declarations,
                              bool allow_programmatic) {
  return Capture(captured, declarations).relax(allow_programmatic);
}

}  // namespace megartp
