// The drawn forms of a graph: what is drawn, and that no name can break the syntax.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "graph/graph_view.h"
#include "graph/test_graphs.h"
#include "graph/text.h"
#include "megartp/op_graph.h"
#include "support/regex.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace megartp {
namespace {

using ::testing::HasSubstr;

constexpr const char* kHostile[] = {"quote\" ] end",
                                    "back\\slash\\",
                                    "new\nline",
                                    "<b>&amp;</b>",
                                    "gr\u00f6\u00dfe \U0001f40c",
                                    "a|b --> c",
                                    "%%{init: {}}%%",
                                    "`#quot;`",
                                    "\t\x01\x7f",
                                    "\"",
                                    "\\",
                                    "\\N\\G\\l",
                                    "]:::state",
                                    "subgraph end"};

OpGraph hostile_graph() {
  OpGraph g("digraph \"x\" { }\n%%{init}%%");
  std::vector<Tensor> sums;
  for (const char* name : kHostile) {
    const Tensor x = g.runtime_arg(name, DType::kBF16, {"M", 8});
    sums.push_back(g.add(x, x, name));
  }
  g.set_outputs({sums[0]});
  return g;
}

OpGraph viewed_graph() {
  OpGraph g("small");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 8});
  const Tensor w = g.bound_weight("w", DType::kBF16, {"M", 8});
  const Tensor y = g.add(x, w, "first");
  g.add(y, y, "unused");
  const Tensor z = g.add(y, x, "last");
  g.set_outputs({z});
  return g;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// "first -> last: y BF16 [M, 8]"
std::vector<std::string> edges_of(const GraphView& view) {
  std::vector<std::string> out;
  for (const ViewEdge& e : view.edges) {
    std::string s = view.nodes[e.source].lines[0] +
                    (e.kind == EdgeKind::kInPlace     ? " => "
                     : e.kind == EdgeKind::kWriteBack ? " ..> "
                                                      : " -> ") +
                    view.nodes[e.target].lines[0] + ":";
    for (const std::string& line : e.lines) s += " " + line;
    out.push_back(s);
  }
  return out;
}

TEST(GraphView, NodesAndEdges) {
  const GraphView view = make_view(viewed_graph());
  std::vector<NodeKind> kinds;
  for (const ViewNode& n : view.nodes) kinds.push_back(n.kind);
  EXPECT_THAT(kinds, ::testing::ElementsAre(NodeKind::kRuntimeArg, NodeKind::kWeight, NodeKind::kOp, NodeKind::kOp,
                                            NodeKind::kOp, NodeKind::kOutput, NodeKind::kUnused));
  EXPECT_THAT(edges_of(view),
              ::testing::ElementsAre("x -> first: x BF16 [M, 8]", "w -> first: w BF16 [M, 8]",
                                     "first -> unused: first.out BF16 [M, 8]", "first -> unused: first.out BF16 [M, 8]",
                                     "first -> last: first.out BF16 [M, 8]", "x -> last: x BF16 [M, 8]",
                                     "last -> last.out:", "unused -> unused.out:"));
}

// A reader after an update depends on the updater, not on the state as it was.
TEST(GraphView, InPlaceUpdatesChainThroughTheOps) {
  const OpGraph g = test::absorb_chain();
  ASSERT_TRUE(g.status()) << g.status().error().to_string();
  const std::vector<std::string> edges = edges_of(make_view(g));
  for (const char* expected :
       {"q_out => first: q_out BF16 [M, 2, 320] updated in place", "first ..> q_out: writes q_out",
        "first => second: q_out BF16 [M, 2, 320] updated in place", "second ..> q_out: writes q_out",
        "second -> third: q_out BF16 [M, 2, 320]", "second -> q_out:"})
    EXPECT_THAT(edges, ::testing::Contains(expected));
  EXPECT_THAT(edges, ::testing::Not(::testing::Contains("q_out -> third: q_out BF16 [M, 2, 320]")));
}

TEST(GraphDot, Golden) {
  EXPECT_EQ(to_dot(viewed_graph()), R"(digraph "small" {
  rankdir=TB;
  node [style=filled, fontname="Helvetica", fontsize=11];
  edge [fontname="Helvetica", fontsize=9];
  n0 [shape=parallelogram, fillcolor="#dbeafe", label="x\nBF16 [M, 8]"];
  n1 [shape=folder, fillcolor="#e5e7eb", label="w\nBF16 [M, 8]"];
  n2 [shape=box, fillcolor="#ffffff", penwidth=1.5, label="first\nadd"];
  n3 [shape=box, fillcolor="#ffffff", penwidth=1.5, label="unused\nadd"];
  n4 [shape=box, fillcolor="#ffffff", penwidth=1.5, label="last\nadd"];
  n5 [shape=house, orientation=180, fillcolor="#bbf7d0", label="last.out\nBF16 [M, 8]"];
  n6 [shape=plaintext, fillcolor="#ffffff", fontcolor="#6b7280", label="unused.out\nBF16 [M, 8]"];
  n0 -> n2 [label="x\nBF16 [M, 8]"];
  n1 -> n2 [label="w\nBF16 [M, 8]"];
  n2 -> n3 [label="first.out\nBF16 [M, 8]"];
  n2 -> n3 [label="first.out\nBF16 [M, 8]"];
  n2 -> n4 [label="first.out\nBF16 [M, 8]"];
  n0 -> n4 [label="x\nBF16 [M, 8]"];
  n4 -> n5 [label=""];
  n3 -> n6 [label=""];
}
)");
}

TEST(GraphMermaid, Golden) {
  const std::string text = to_mermaid(viewed_graph());
  const std::string graph = text.substr(0, text.find("  classDef"));
  EXPECT_EQ(graph, R"(flowchart TB
  %% small
  n0[/"x<br/>BF16 [M, 8]"/]:::arg
  n1[["w<br/>BF16 [M, 8]"]]:::weight
  n2["first<br/>add"]:::op
  n3["unused<br/>add"]:::op
  n4["last<br/>add"]:::op
  n5(["last.out<br/>BF16 [M, 8]"]):::output
  n6("unused.out<br/>BF16 [M, 8]"):::unused
  n0 -->|"x<br/>BF16 [M, 8]"| n2
  n1 -->|"w<br/>BF16 [M, 8]"| n2
  n2 -->|"first.out<br/>BF16 [M, 8]"| n3
  n2 -->|"first.out<br/>BF16 [M, 8]"| n3
  n2 -->|"first.out<br/>BF16 [M, 8]"| n4
  n0 -->|"x<br/>BF16 [M, 8]"| n4
  n4 --> n5
  n3 --> n6
)");
  for (const char* style : {"arg", "weight", "state", "op", "output", "unused"})
    EXPECT_THAT(text, HasSubstr("  classDef " + std::string(style) + " fill:"));
}

// Every line has one of the few forms that the writer uses, with a label that holds nothing but harmless characters,
// character codes and <br/>; edges join nodes that exist.
void expect_sound_mermaid(const std::string& text) {
  EXPECT_TRUE(is_valid_utf8(text));
  const std::string plain = R"re([^"<>\\`{}|#&%;\x01-\x1f]|#[0-9]+;)re";
  const std::string label = "\"((?:" + plain + "|<br/>)*)\"";
  const std::regex node(R"re(  (n[0-9]+)(?:\[/|\[\[|\[\(|\(\[|\[|\())re" + label +
                        R"re((?:/\]|\]\]|\)\]|\]\)|\]|\)):::(?:arg|weight|state|op|output|unused))re");
  const std::regex edge(R"re(  (n[0-9]+) (?:-->|==>|-\.->)(?:\|)re" + label + R"re(\|)? (n[0-9]+))re");
  const std::regex comment("  %% (?:" + plain + ")*");
  std::set<std::string> nodes;
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_GT(lines.size(), 2U);
  EXPECT_EQ(lines[0], "flowchart TB");
  EXPECT_TRUE(std::regex_match(lines[1], comment)) << lines[1];
  for (size_t i = 2; i < lines.size(); ++i) {
    std::smatch m;
    if (lines[i].starts_with("  classDef ")) continue;
    if (std::regex_match(lines[i], m, node)) {
      EXPECT_TRUE(nodes.insert(m[1]).second) << lines[i];
    } else if (std::regex_match(lines[i], m, edge)) {
      EXPECT_TRUE(nodes.contains(m[1]) && nodes.contains(m[3])) << lines[i];
    } else {
      ADD_FAILURE() << "line " << i + 1 << ": " << lines[i];
    }
  }
}

TEST(GraphMermaid, HostileNames) {
  const OpGraph g = hostile_graph();
  ASSERT_TRUE(g.status()) << g.status().error().to_string();
  const std::string text = to_mermaid(g);
  expect_sound_mermaid(text);
  EXPECT_THAT(text, HasSubstr("quote#34; ] end"));
  EXPECT_THAT(text, HasSubstr("new#92;nline"));
  EXPECT_THAT(text, HasSubstr("#60;b#62;#38;amp#59;#60;/b#62;"));
  EXPECT_THAT(text, HasSubstr("gr\xc3\xb6\xc3\x9f"
                              "e \xf0\x9f\x90\x8c"));
  expect_sound_mermaid(to_mermaid(test::absorb_chain()));
}

TEST(GraphDot, HostileNames) {
  const std::string text = to_dot(hostile_graph());
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_THAT(text, HasSubstr(R"(label="quote\" ] end\nBF16 [M, 8]")"));
  EXPECT_THAT(text, HasSubstr(R"(label="back\\slash\\\nBF16 [M, 8]")"));
  EXPECT_THAT(text, HasSubstr(R"(label="new\\nline\nBF16 [M, 8]")"));
  EXPECT_THAT(text, HasSubstr(R"(label="<b>&amp;amp;</b>\nBF16 [M, 8]")"));
  EXPECT_THAT(text, HasSubstr(R"(label="\\N\\G\\l\nBF16 [M, 8]")"));
  for (const std::string& line : lines_of(text))
    EXPECT_TRUE(std::regex_match(line, std::regex(R"re((?:[^"]|"(?:[^"\\]|\\.)*")*)re")))
        << "unbalanced quotes: " << line;
}

// Runs `dot -Tplain`, without a shell; false when Graphviz is not installed.
bool run_dot(const std::string& text, std::string& plain, int& status) {
  namespace fs = std::filesystem;
  const fs::path dir = fs::temp_directory_path() / ("megartp_dot_" + std::to_string(getpid()));
  fs::create_directories(dir);
  const std::string in = dir / "graph.dot";
  const std::string out = dir / "graph.txt";
  std::ofstream(in, std::ios::binary) << text;
  std::string program = "dot";
  std::string format = "-Tplain";
  std::string output = "-o" + out;
  std::string input = in;
  char* argv[] = {program.data(), format.data(), output.data(), input.data(), nullptr};
  pid_t pid = 0;
  const bool started = posix_spawnp(&pid, "dot", nullptr, nullptr, argv, environ) == 0;
  if (started) {
    waitpid(pid, &status, 0);
    std::ifstream file(out, std::ios::binary);
    plain.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  fs::remove_all(dir);
  return started;
}

TEST(GraphDot, GraphvizReadsIt) {
  for (const OpGraph& g : {viewed_graph(), hostile_graph(), test::absorb_chain()}) {
    std::string plain;
    int status = -1;
    if (!run_dot(to_dot(g), plain, status)) GTEST_SKIP() << "Graphviz is not installed";
    ASSERT_TRUE(WIFEXITED(status)) << g.name();
    if (WEXITSTATUS(status) == 127) GTEST_SKIP() << "Graphviz is not installed";
    EXPECT_EQ(WEXITSTATUS(status), 0) << to_dot(g);
    std::map<std::string, size_t> count;  // by the first word of the line
    for (const std::string& line : lines_of(plain)) ++count[line.substr(0, line.find(' '))];
    const GraphView view = make_view(g);
    EXPECT_EQ(count["node"], view.nodes.size()) << plain;
    EXPECT_EQ(count["edge"], view.edges.size()) << plain;
  }
}

TEST(GraphTextProperty, RandomGraphs) {
  EXPECT_TRUE(rc::check("one node per leaf, op, output and unused result; one edge per use", [] {
    const OpGraph g = test::random_graph(*rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>()));
    const GraphView view = make_view(g);
    size_t leaves = 0;
    size_t uses = 0;
    std::set<TensorId> used(g.outputs().begin(), g.outputs().end());
    for (const TensorInfo& t : g.tensors()) leaves += t.producer == kInvalidId ? 1 : 0;
    for (const OpInfo& op : g.ops()) {
      uses += op.inputs.size();
      used.insert(op.inputs.begin(), op.inputs.end());
    }
    size_t unused = 0;
    for (TensorId id = 0; id < g.tensors().size(); ++id)
      unused += g.tensor(id).producer != kInvalidId && !used.contains(id) ? 1 : 0;
    RC_ASSERT(view.nodes.size() == leaves + g.ops().size() + g.outputs().size() + unused);
    RC_ASSERT(view.edges.size() == uses + g.outputs().size() + unused);
    for (const ViewEdge& e : view.edges) RC_ASSERT(e.source < view.nodes.size() && e.target < view.nodes.size());
    const std::string dot = to_dot(g);
    RC_ASSERT(std::count(dot.begin(), dot.end(), '\n') ==
              static_cast<std::ptrdiff_t>(5 + view.nodes.size() + view.edges.size()));
  }));
}

}  // namespace
}  // namespace megartp
