// Which edges are programmatic and how early their consumers start: what the options ask for, as far as the prover goes
// along.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "launch/launch_passes.h"
#include "verify/launch/launch_prover.h"

namespace megartp::launching {
namespace {

bool wants_programmatic(LaunchMode mode) { return mode == LaunchMode::kPdl || mode == LaunchMode::kCmp; }

void set_level(LaunchEdge& edge, EdgeLevel level) {
  edge.level = level;
  edge.kind = level == EdgeLevel::kFull ? launch::EdgeKind::kFull : launch::EdgeKind::kProgrammatic;
}

EdgeLevel one_lower(EdgeLevel level) { return static_cast<EdgeLevel>(static_cast<uint8_t>(level) - 1); }

class Decider {
 public:
  Decider(const LaunchOptions& options, LaunchPlan& plan) : options_(options), plan_(plan) {}

  Status run() {
    MEGARTP_TRY(apply_forced());
    choose_levels();
    drop_implied();
    if (plan_.mode == LaunchMode::kCmp) straighten_joins();
    // Names of edges that only straightening made.
    MEGARTP_TRY(apply_forced());
    MEGARTP_TRY(check_forced_names());
    return finish();
  }

 private:
  Status apply_forced() {
    for (LaunchEdge& e : plan_.edges) {
      const auto it = options_.levels.find(edge_name(plan_, e));
      if (it == options_.levels.end()) continue;
      used_.insert(it->first);
      e.is_forced = true;
      set_level(e, it->second);
      if (it->second == EdgeLevel::kFull) continue;
      if (!wants_programmatic(plan_.mode))
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("edge '{}': mode {} has full edges only", it->first, to_string(plan_.mode)));
      if (!plan_.kernels[e.to].kernel.waits)
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("edge '{}' cannot be {}: kernel '{}' never waits", it->first,
                                      to_string(it->second), plan_.kernels[e.to].name));
    }
    return {};
  }

  Status check_forced_names() const {
    for (const auto& [name, level] : options_.levels) {
      if (used_.contains(name)) continue;
      std::vector<std::string> known;
      for (const LaunchEdge& e : plan_.edges) known.push_back(edge_name(plan_, e));
      return make_error(ErrorCode::kInvalidArgument, fmt::format("mode {} has no edge '{}'; it has {}",
                                                                 to_string(plan_.mode), name, fmt::join(known, ", ")));
    }
    return {};
  }

  bool is_free(const LaunchEdge& e) const {
    return !e.is_forced && options_.default_level != EdgeLevel::kFull && wants_programmatic(plan_.mode) &&
           plan_.kernels[e.to].kernel.waits;
  }

  // Without texts: this is asked often.
  bool proves() {
    set_waits(plan_);
    const launch::Graph graph = proof_graph(plan_, 1);
    return launch::prove(graph, {.max_explained = 0, .max_flips = 0}).is_ok();
  }

  void choose_levels() {
    for (LaunchEdge& e : plan_.edges)
      if (is_free(e)) set_level(e, options_.default_level);
    if (proves()) return;
    for (LaunchEdge& e : plan_.edges)
      if (is_free(e)) set_level(e, EdgeLevel::kFull);
    for (LaunchEdge& e : plan_.edges) {
      if (!is_free(e)) continue;
      for (EdgeLevel level = options_.default_level; level != EdgeLevel::kFull; level = one_lower(level)) {
        set_level(e, level);
        if (proves()) break;
        set_level(e, EdgeLevel::kFull);
      }
    }
  }

  // An edge that a longer path implies goes, if the proof does without it: programmatic paths imply less than full
  // ones.
  void drop_implied() {
    const bool is_chain = plan_.mode == LaunchMode::kSerial || plan_.mode == LaunchMode::kPdl;
    if (is_chain || !proves()) return;
    const std::vector<char> redundant = redundant_edges(plan_.kernels.size(), plan_.edges);
    std::vector<LaunchEdge> all = plan_.edges;
    std::vector<char> drop(all.size());
    for (size_t i = 0; i < all.size(); ++i) drop[i] = static_cast<char>(redundant[i] != 0 && !all[i].is_forced);
    const auto keep_rest = [&] {
      plan_.edges.clear();
      for (size_t i = 0; i < all.size(); ++i)
        if (drop[i] == 0) plan_.edges.push_back(all[i]);
    };
    keep_rest();
    if (proves()) return;
    const std::vector<char> candidates = drop;
    std::ranges::fill(drop, 0);
    for (size_t i = 0; i < all.size(); ++i) {
      if (candidates[i] == 0) continue;
      drop[i] = 1;
      keep_rest();
      if (!proves()) drop[i] = 0;
    }
    keep_rest();
  }

  // A kernel with several programmatic in-edges starts late: on an H200 the graph then launches it when a producer has
  // ended, not when it has triggered (docs/performance.md). Where a producer has ended, by estimate, before the last
  // one starts, the last one can wait for it in the kernel's place. Kernels that nobody waits for may start late.
  void straighten_joins() {
    if (!proves()) return;
    for (uint32_t k = 0; k < plan_.kernels.size(); ++k) {
      const bool has_successor = std::ranges::any_of(plan_.edges, [&](const LaunchEdge& e) { return e.from == k; });
      while (has_successor && straighten(k)) {
      }
    }
  }
  bool straighten(uint32_t k) {
    const std::vector<double> start = estimated_starts(plan_);
    std::vector<size_t> in;
    for (size_t i = 0; i < plan_.edges.size(); ++i)
      if (plan_.edges[i].to == k && plan_.edges[i].kind == launch::EdgeKind::kProgrammatic) in.push_back(i);
    if (in.size() < 2) return false;
    const uint32_t last =
        plan_.edges[*std::ranges::max_element(in, {}, [&](size_t i) { return start[plan_.edges[i].from]; })].from;
    for (const size_t i : in) {
      const LaunchEdge e = plan_.edges[i];
      if (e.from >= last || e.is_forced || start[e.from] + plan_.kernels[e.from].estimated_us > start[last]) continue;
      const std::vector<LaunchEdge> before = plan_.edges;
      plan_.edges.erase(plan_.edges.begin() + static_cast<std::ptrdiff_t>(i));
      const auto same = [&](const LaunchEdge& o) { return o.from == e.from && o.to == last; };
      if (std::ranges::none_of(plan_.edges, same)) {
        LaunchEdge moved = e;
        moved.to = last;
        moved.is_moved = true;
        const auto at = std::ranges::upper_bound(plan_.edges, std::pair(moved.from, moved.to), {},
                                                 [](const LaunchEdge& o) { return std::pair(o.from, o.to); });
        plan_.edges.insert(at, std::move(moved));
      }
      if (proves()) return true;
      plan_.edges = before;
    }
    return false;
  }

  Error refusal() const {
    Error error{ErrorCode::kInternal,
                fmt::format("the kernels of '{}' do not prove in mode {}", plan_.name, to_string(plan_.mode))};
    std::vector<std::string> forced;
    for (const LaunchEdge& e : plan_.edges)
      if (e.is_forced && e.level != EdgeLevel::kFull)
        forced.push_back(fmt::format("{}={}", edge_name(plan_, e), to_string(e.level)));
    if (options_.replay_streams > 1) {
      error.code = ErrorCode::kInvalidArgument;
      error.message = fmt::format("replays of '{}' on {} streams do not prove", plan_.name, options_.replay_streams);
    } else if (!forced.empty()) {
      error.code = ErrorCode::kInvalidArgument;
      error.message = fmt::format("'{}' does not prove with {}", plan_.name, fmt::join(forced, ", "));
    }
    for (const launch::Finding& f : plan_.proof.findings)
      if (f.severity == launch::Severity::kError) error.details += launch::finding_text(plan_.graph, f);
    return error;
  }

  Status finish() {
    set_waits(plan_);
    if (plan_.mode == LaunchMode::kDag || plan_.mode == LaunchMode::kCmp) set_priorities(plan_);
    plan_.graph = proof_graph(plan_, options_.replay_streams);
    if (const Status ok = launch::check_graph(plan_.graph); !ok)
      return make_error(ErrorCode::kInternal,
                        fmt::format("the launch graph of '{}' is malformed: {}", plan_.name, ok.error().message));
    plan_.proof = launch::prove(plan_.graph);
    for (const launch::EdgeProof& p : plan_.proof.edges) plan_.edges[p.edge].proof = p.text;
    if (!plan_.proof.is_ok()) return tl::unexpected(refusal());
    return {};
  }

  const LaunchOptions& options_;
  LaunchPlan& plan_;
  std::set<std::string_view> used_;  // names in options_.levels that were found
};

}  // namespace

Status decide_edges(const LaunchOptions& options, LaunchPlan& plan) { return Decider(options, plan).run(); }

}  // namespace megartp::launching
