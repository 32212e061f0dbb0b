// Mermaid flowchart of an OpGraph.
#include <string_view>

#include <fmt/format.h>

#include "graph/graph_view.h"
#include "graph/text.h"

namespace megartp {
namespace {

// Text inside a quoted Mermaid label. Quotes, markup, entities, Markdown and directives ("%%{") are written as
// character codes, which Mermaid decodes; control characters are shown as \n or \xNN; other Unicode stays.
std::string escape_mermaid(std::string_view text) {
  constexpr std::string_view kPlain = " .,:()[]+-/=_";
  const std::string shown = quote_name(text);
  std::string out;
  for (const char c : std::string_view(shown).substr(1, shown.size() - 2)) {
    const auto u = static_cast<unsigned char>(c);
    const bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (alnum || u >= 0x80 || kPlain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("#{};", u);
    }
  }
  return out;
}

std::string mermaid_label(const std::vector<std::string>& lines) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) out += (i == 0 ? "" : "<br/>") + escape_mermaid(lines[i]);
  return out;
}

struct NodeShape {
  std::string_view open;
  std::string_view close;
  std::string_view style;
};

NodeShape node_shape(NodeKind kind) {
  switch (kind) {
    case NodeKind::kRuntimeArg: return {"[/", "/]", "arg"};
    case NodeKind::kWeight: return {"[[", "]]", "weight"};
    case NodeKind::kState: return {"[(", ")]", "state"};
    case NodeKind::kOp: return {"[", "]", "op"};
    case NodeKind::kOutput: return {"([", "])", "output"};
    case NodeKind::kUnused: return {"(", ")", "unused"};
  }
  return {"[", "]", "op"};
}

std::string_view arrow(EdgeKind kind) {
  if (kind == EdgeKind::kInPlace) return "==>";
  return kind == EdgeKind::kWriteBack ? "-.->" : "-->";
}

}  // namespace

std::string to_mermaid(const OpGraph& graph) {
  const GraphView view = make_view(graph);
  std::string out = fmt::format("flowchart TB\n  %% {}\n", escape_mermaid(graph.name()));
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    const NodeShape shape = node_shape(view.nodes[i].kind);
    out += fmt::format("  n{}{}\"{}\"{}:::{}\n", i, shape.open, mermaid_label(view.nodes[i].lines), shape.close,
                       shape.style);
  }
  for (const ViewEdge& e : view.edges) {
    const std::string text = e.lines.empty() ? "" : fmt::format("|\"{}\"|", mermaid_label(e.lines));
    out += fmt::format("  n{} {}{} n{}\n", e.source, arrow(e.kind), text, e.target);
  }
  return out +
         "  classDef arg fill:#dbeafe,stroke:#3b82f6,color:#111827\n"
         "  classDef weight fill:#e5e7eb,stroke:#6b7280,color:#111827\n"
         "  classDef state fill:#fde68a,stroke:#b45309,color:#111827\n"
         "  classDef op fill:#ffffff,stroke:#111827,stroke-width:2px,color:#111827\n"
         "  classDef output fill:#bbf7d0,stroke:#15803d,color:#111827\n"
         "  classDef unused fill:#ffffff,stroke:#9ca3af,stroke-dasharray:4,color:#6b7280\n";
}

}  // namespace megartp
