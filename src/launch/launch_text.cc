#include "launch/launch_text.h"

#include <fmt/format.h>

#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"

namespace megartp {
namespace {

// Node names of the proof's graph are plain: no quotes, no backslashes.
const std::string& shown(const LaunchPlan& plan, uint32_t kernel) { return plan.graph.nodes[kernel].name; }

std::string reasons_text(const LaunchPlan& plan, const LaunchEdge& edge) {
  if (edge.reasons.empty()) return "order of the chain";
  std::string text;
  for (const EdgeReason& r : edge.reasons)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(r.kind), plan.tensors[r.tensor].name);
  if (edge.is_moved) text += ", for a kernel behind it";
  return text;
}

std::string megabytes(const DeviceKernel& k) {
  return fmt::format("{:.3f} MB", static_cast<double>(k.weight_bytes + k.other_bytes) / 1e6);
}

}  // namespace

std::string to_json(const LaunchPlan& plan) { return launch::to_json(plan.graph); }

std::string to_dot(const LaunchPlan& plan) {
  std::string out = "digraph launch {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (uint32_t k = 0; k < plan.kernels.size(); ++k)
    out += fmt::format("  k{} [label=\"{}\\n{}\"];\n", k, shown(plan, k), megabytes(plan.kernels[k].kernel));
  for (const LaunchEdge& e : plan.edges)
    out += e.kind == launch::EdgeKind::kFull
               ? fmt::format("  k{} -> k{};\n", e.from, e.to)
               : fmt::format("  k{} -> k{} [style=dashed, label=\"{}\"];\n", e.from, e.to, to_string(e.level));
  return out + "}\n";
}

std::string to_mermaid(const LaunchPlan& plan) {
  std::string out = "flowchart TB\n";
  for (uint32_t k = 0; k < plan.kernels.size(); ++k) out += fmt::format("  k{}[\"{}\"]\n", k, shown(plan, k));
  for (const LaunchEdge& e : plan.edges)
    out += e.kind == launch::EdgeKind::kFull ? fmt::format("  k{} --> k{}\n", e.from, e.to)
                                             : fmt::format("  k{} -. {} .-> k{}\n", e.from, to_string(e.level), e.to);
  return out;
}

std::string explain(const LaunchPlan& plan) {
  std::string out;
  for (const LaunchEdge& e : plan.edges)
    out += fmt::format("{} -> {}: {}{} ({})\n  {}\n", shown(plan, e.from), shown(plan, e.to), to_string(e.level),
                       e.is_forced ? ", as asked" : "", reasons_text(plan, e), e.proof);
  for (const launch::Finding& f : plan.proof.findings) out += launch::finding_text(plan.graph, f);
  return out;
}

}  // namespace megartp
