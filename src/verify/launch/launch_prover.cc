#include "verify/launch/launch_prover.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/launch/launch_edges.h"
#include "verify/launch/launch_remedies.h"
#include "verify/launch/launch_rules.h"
#include "verify/launch/launch_story.h"
#include "verify/launch/launch_streams.h"

namespace megartp::launch {
namespace {

class Prover {
 public:
  Prover(const Graph& graph, const ProveOptions& options)
      : graph_(graph), options_(options), order_(graph), is_blamed_(graph.nodes.size(), 0) {}

  Proof run() {
    check_hazards();
    std::vector<Finding>& out = proof_.findings;
    check_waits(graph_, is_blamed_, out);
    check_edge_kinds(graph_, out);
    check_replays(graph_, out);
    check_progress(graph_, order_, out);
    check_counters(graph_, out);
    check_code(graph_, out);
    check_advice(graph_, order_, out);
    check_use(graph_, out);
    proof_.edges = prove_edges(graph_, hazards_, options_.max_flips);
    refuse_edges();
    std::ranges::stable_sort(out, {}, &Finding::severity);
    if (out.size() > options_.max_findings) {
      proof_.num_left_out += out.size() - options_.max_findings;
      out.resize(options_.max_findings);
    }
    return std::move(proof_);
  }

 private:
  const std::string& name(uint32_t n) const { return graph_.nodes[n].name; }

  // Edges that no race speaks against, but another rule.
  void refuse_edges() {
    for (const Finding& f : proof_.findings) {
      if (f.severity != Severity::kError || !f.edge || !proof_.edges[*f.edge].holds) continue;
      proof_.edges[*f.edge] = {
          *f.edge, false,
          fmt::format("{}, which {} refuses", to_string(graph_.edges[*f.edge].kind), to_string(f.rule))};
    }
  }

  void check_hazards() {
    const std::vector<Conflict> conflicts = find_conflicts(graph_);
    proof_.num_conflicts = conflicts.size();
    for (const Conflict& c : conflicts) {
      const Access& a = graph_.nodes[c.first].accesses[c.first_access];
      const Access& b = graph_.nodes[c.second].accesses[c.second_access];
      const std::optional<Gap> gap = find_gap(graph_, order_, c.first, a, c.second, b);
      if (!gap) continue;
      hazards_.push_back(c);
      if (hazards_.size() <= options_.max_findings)
        report(c, *gap);
      else
        ++proof_.num_left_out;
    }
  }

  void report(const Conflict& c, Gap gap) {
    const Node& k = graph_.nodes[c.second];
    const Access& a = graph_.nodes[c.first].accesses[c.first_access];
    const Access& b = k.accesses[c.second_access];
    std::vector<Remedy> remedies;
    const bool is_explained =
        hazards_.size() <= options_.max_explained && graph_.nodes.size() <= options_.max_explained_nodes;
    if (is_explained) remedies = find_remedies(graph_, c);
    Finding f;
    f.rule = classify(c, gap, remedies);
    f.nodes = {c.first, c.second};
    f.conflict = c;
    f.message = fmt::format("{}: {} {} {}, and {}", hazard_name(a, b), k.name, access_text(graph_, b, c.begin, c.end),
                            is_early(k, b) ? early_text(k, b) : "after its wait", what_is_missing(c, a, gap));
    for (const Remedy& r : remedies) {
      f.remedies.push_back(r.text);
      if (r.kind == RemedyKind::kWait || r.kind == RemedyKind::kWaitTrigger) is_blamed_[r.node] = 1;
    }
    if (!is_explained && !waits_always(k)) is_blamed_[c.second] = 1;
    for (const Remedy& r : remedies) {
      if (r.node == c.second) continue;  // named already
      const std::string cause = cause_text(r);
      if (!cause.empty()) f.message += "; " + cause;
    }
    f.steps = tell_story(graph_, c);
    proof_.findings.push_back(std::move(f));
  }

  std::string early_text(const Node& node, const Access& access) const {
    switch (early_reason(node, access)) {
      case Early::kNeverWaits: return "and never waits";
      case Early::kLifted:
        return "through the read-only path in threads that do not wait themselves, so that the compiler may lift the "
               "load "
               "above the wait";
      case Early::kMerged:
        return "through the read-only path from a line that it has read before its wait, so that both loads may be one";
      case Early::kDeclared:
      case Early::kNotEarly: break;
    }
    return node.waits == Waits::kNone ? "and never waits" : "before its wait";
  }

  std::string what_is_missing(const Conflict& c, const Access& a, Gap gap) const {
    const std::string& x = name(c.first);
    if (gap == Gap::kVisibility)
      return fmt::format(
          "though {} has written it by then, no release fence between a wait and a trigger, and no full "
          "edge, makes that visible",
          x);
    if (!a.is_write) return fmt::format("{} may not have read it yet", x);
    if (graph_.nodes[c.first].trigger != Trigger::kNone && a.before_trigger)
      return fmt::format("{}, whose store stands before its trigger, need not have made it visible yet", x);
    return fmt::format("{} may not have written it yet", x);
  }

  // Why a node in between breaks the chain.
  std::string cause_text(const Remedy& r) const {
    switch (r.kind) {
      case RemedyKind::kWait:
      case RemedyKind::kWaitTrigger:
        if (graph_.nodes[r.node].waits == Waits::kNone)
          return fmt::format("{} passes on no completion: it never waits", name(r.node));
        return {};
      case RemedyKind::kPassOn:
        if (graph_.nodes[r.node].trigger != Trigger::kBeforeWait) return {};
        [[fallthrough]];
      case RemedyKind::kTriggerLater: return fmt::format("{} triggers before its own wait has returned", name(r.node));
      default: return {};
    }
  }

  Rule classify(const Conflict& c, Gap gap, const std::vector<Remedy>& remedies) const {
    const Node& k = graph_.nodes[c.second];
    const Access& a = graph_.nodes[c.first].accesses[c.first_access];
    const Access& b = k.accesses[c.second_access];
    if (gap == Gap::kVisibility) return Rule::kR3;
    const bool plain_is_enough =
        std::ranges::any_of(remedies, [](const Remedy& r) { return r.kind == RemedyKind::kPlainLoad; });
    if (plain_is_enough) return early_reason(k, b) == Early::kLifted ? Rule::kR5 : Rule::kR14;
    // The store stands before the trigger on purpose: the fences are what is missing.
    if (a.is_write && a.before_trigger && order_.before_start(c.first, Moment::kFired, c.second) && is_early(k, b))
      return Rule::kR6;
    const BufferKind kind = graph_.buffers[a.buffer].kind;
    return kind == BufferKind::kData ? Rule::kR2 : Rule::kR11;
  }

  const Graph& graph_;
  const ProveOptions& options_;
  Order order_;
  Proof proof_;
  std::vector<Conflict> hazards_;
  std::vector<char> is_blamed_;
};

}  // namespace

std::string to_string(Rule rule) { return fmt::format("R{}", static_cast<int>(rule)); }

bool Proof::is_ok() const {
  return num_left_out == 0 &&
         std::ranges::none_of(findings, [](const Finding& f) { return f.severity == Severity::kError; });
}

Proof prove(const Graph& graph, const ProveOptions& options) { return Prover(graph, options).run(); }

Proof prove(const LoweredProgram& program, const ProveOptions& options) {
  Proof proof = prove(program.graph, options);
  proof.findings.insert(proof.findings.begin(), program.findings.begin(), program.findings.end());
  std::ranges::stable_sort(proof.findings, {}, &Finding::severity);
  return proof;
}

std::vector<Conflict> find_hazards(const Graph& graph) {
  const Order order(graph);
  std::vector<Conflict> out;
  for (const Conflict& c : find_conflicts(graph))
    if (find_gap(graph, order, c.first, graph.nodes[c.first].accesses[c.first_access], c.second,
                 graph.nodes[c.second].accesses[c.second_access]))
      out.push_back(c);
  return out;
}

std::string finding_text(const Graph& /*graph*/, const Finding& finding) {
  std::string text = fmt::format("{} {}: {}\n", to_string(finding.rule),
                                 finding.severity == Severity::kError ? "error" : "warning", finding.message);
  size_t number = 0;
  for (const Step& s : finding.steps)
    if (!s.text.empty()) text += fmt::format("    {}. {}\n", ++number, s.text);
  for (size_t i = 0; i < finding.remedies.size(); ++i)
    text += fmt::format("    {} {}\n", i == 0 ? "passes when" : "         or", finding.remedies[i]);
  return text;
}

}  // namespace megartp::launch
