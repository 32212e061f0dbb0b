// Graphviz form of an OpGraph.
#include <string_view>

#include <fmt/format.h>

#include "graph/graph_view.h"
#include "graph/text.h"

namespace megartp {
namespace {

// Text inside a double-quoted DOT string. Backslashes are doubled (labels have escapes of their own, \n, \l, \N), & is
// an entity because Graphviz decodes entities, and control characters are shown as \n or \xNN.
std::string escape_dot(std::string_view text) {
  const std::string shown = quote_name(text);  // one line, printable
  std::string out;
  for (const char c : std::string_view(shown).substr(1, shown.size() - 2)) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '"') {
      out += "\\\"";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string label(const std::vector<std::string>& lines) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) out += (i == 0 ? "" : "\\n") + escape_dot(lines[i]);
  return out;
}

std::string_view node_style(NodeKind kind) {
  switch (kind) {
    case NodeKind::kRuntimeArg: return "shape=parallelogram, fillcolor=\"#dbeafe\"";
    case NodeKind::kWeight: return "shape=folder, fillcolor=\"#e5e7eb\"";
    case NodeKind::kState: return "shape=cylinder, fillcolor=\"#fde68a\"";
    case NodeKind::kOp: return "shape=box, fillcolor=\"#ffffff\", penwidth=1.5";
    case NodeKind::kOutput: return "shape=house, orientation=180, fillcolor=\"#bbf7d0\"";
    case NodeKind::kUnused: return "shape=plaintext, fillcolor=\"#ffffff\", fontcolor=\"#6b7280\"";
  }
  return "";
}

std::string_view edge_style(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kUse: return "";
    case EdgeKind::kInPlace: return ", style=bold, color=\"#b45309\"";
    case EdgeKind::kWriteBack: return ", style=dashed, color=\"#b45309\", constraint=false";
  }
  return "";
}

}  // namespace

std::string to_dot(const OpGraph& graph) {
  const GraphView view = make_view(graph);
  std::string out = fmt::format("digraph \"{}\" {{\n", escape_dot(graph.name()));
  out += "  rankdir=TB;\n  node [style=filled, fontname=\"Helvetica\", fontsize=11];\n";
  out += "  edge [fontname=\"Helvetica\", fontsize=9];\n";
  for (size_t i = 0; i < view.nodes.size(); ++i)
    out += fmt::format("  n{} [{}, label=\"{}\"];\n", i, node_style(view.nodes[i].kind), label(view.nodes[i].lines));
  for (const ViewEdge& e : view.edges)
    out += fmt::format("  n{} -> n{} [label=\"{}\"{}];\n", e.source, e.target, label(e.lines), edge_style(e.kind));
  return out + "}\n";
}

}  // namespace megartp
