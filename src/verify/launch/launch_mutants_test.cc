// The changes and random graphs that the other tests use.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "verify/launch/launch_test_support.h"

namespace megartp::launch::test {
namespace {

constexpr const char* kFaultFolder = MEGARTP_SOURCE_DIR "/tests/faults/launch";

class Mutator {
 public:
  explicit Mutator(const Graph& graph) : graph_(graph) {}

  std::vector<Mutant> run() {
    edges();
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].kind == NodeKind::kKernel) node(n);
    aliases();
    return std::move(out_);
  }

 private:
  template <class Change>
  void add(std::string text, Change change) {
    Mutant m{std::move(text), graph_};
    change(m.graph);
    if (check_graph(m.graph)) out_.push_back(std::move(m));
  }
  const std::string& name(uint32_t n) const { return graph_.nodes[n].name; }
  bool is_kernel(uint32_t n) const { return graph_.nodes[n].kind == NodeKind::kKernel; }

  void edges() {
    for (uint32_t e = 0; e < graph_.edges.size(); ++e) {
      const Edge edge = graph_.edges[e];
      const std::string what = fmt::format("edge {} -> {}", name(edge.from), name(edge.to));
      add("drop " + what, [e](Graph& g) { g.edges.erase(g.edges.begin() + e); });
      if (!is_kernel(edge.from) || !is_kernel(edge.to)) continue;
      for (const EdgeKind kind :
           {EdgeKind::kFull, EdgeKind::kProgrammatic, EdgeKind::kBlockStart, EdgeKind::kLaunchCompletion})
        if (kind != edge.kind)
          add(fmt::format("make {} {}", what, to_string(kind)), [=](Graph& g) { g.edges[e].kind = kind; });
    }
    for (uint32_t a = 0; a < graph_.nodes.size(); ++a)
      for (uint32_t b = a + 1; b < graph_.nodes.size(); ++b)
        for (const EdgeKind kind : {EdgeKind::kFull, EdgeKind::kProgrammatic})
          if (kind == EdgeKind::kFull || (is_kernel(a) && is_kernel(b)))
            add(fmt::format("add {} edge {} -> {}", to_string(kind), name(a), name(b)),
                [=](Graph& g) { g.edges.push_back({a, b, kind}); });
  }

  void node(uint32_t n) {
    for (const Waits waits : {Waits::kNone, Waits::kSome, Waits::kAll})
      if (waits != graph_.nodes[n].waits)
        add(fmt::format("{} waits: {}", name(n), to_string(waits)), [=](Graph& g) { g.nodes[n].waits = waits; });
    for (const Trigger trigger : {Trigger::kNone, Trigger::kAfterWait, Trigger::kBeforeWait})
      if (trigger != graph_.nodes[n].trigger)
        add(fmt::format("{} triggers: {}", name(n), to_string(trigger)), [=](Graph& g) {
          g.nodes[n].trigger = trigger;
          for (Access& a : g.nodes[n].accesses)
            a.before_trigger &=
                trigger == Trigger::kAfterWait || (trigger == Trigger::kBeforeWait && a.phase == Phase::kPre);
        });
    for (const Fence fence : {Fence::kNone, Fence::kGpu})
      if (fence != graph_.nodes[n].fence)
        add(fmt::format("{} fences: {}", name(n), to_string(fence)), [=](Graph& g) { g.nodes[n].fence = fence; });
    add(fmt::format("{}: the other proxy fence", name(n)), [=](Graph& g) { g.nodes[n].proxy_fence ^= true; });
    for (uint32_t i = 0; i < graph_.nodes[n].accesses.size(); ++i) access(n, i);
  }

  void access(uint32_t n, uint32_t i) {
    const std::string what = fmt::format("{}, access {}", name(n), i);
    add(what + ": the other phase", [=](Graph& g) {
      Access& a = g.nodes[n].accesses[i];
      a.phase = a.phase == Phase::kPre ? Phase::kPost : Phase::kPre;
    });
    add(what + ": the other side of the trigger", [=](Graph& g) { g.nodes[n].accesses[i].before_trigger ^= true; });
    add(what + ": read-only path in another thread", [=](Graph& g) {
      g.nodes[n].accesses[i].means = Means::kReadOnly;
      g.nodes[n].accesses[i].ordered_by = OrderedBy::kBarrier;
    });
    add(what + ": by TMA", [=](Graph& g) { g.nodes[n].accesses[i].means = Means::kTma; });
  }

  void aliases() {
    for (uint32_t a = 0; a < graph_.buffers.size(); ++a)
      for (uint32_t b = a + 1; b < graph_.buffers.size(); ++b)
        add(fmt::format("{} is {}", graph_.buffers[b].name, graph_.buffers[a].name), [=](Graph& g) {
          g.buffers[a].num_bytes = std::max(g.buffers[a].num_bytes, g.buffers[b].num_bytes);
          for (Node& node : g.nodes)
            for (Access& x : node.accesses)
              if (x.buffer == b) x.buffer = a;
        });
  }

  const Graph& graph_;
  std::vector<Mutant> out_;
};

}  // namespace

uint32_t GraphBuilder::buffer(const std::string& name) {
  for (uint32_t b = 0; b < graph_.buffers.size(); ++b)
    if (graph_.buffers[b].name == name) return b;
  graph_.buffers.push_back({name, 64});
  return static_cast<uint32_t>(graph_.buffers.size() - 1);
}

GraphBuilder& GraphBuilder::kernel(const std::string& name, const Contract& contract) {
  Node node;
  node.name = name;
  node.waits = contract.waits;
  node.trigger = contract.trigger;
  const auto add = [&](const std::vector<std::string>& names, bool is_write, Phase phase) {
    for (const std::string& n : names) {
      Access a;
      a.buffer = buffer(n);
      a.end = 64;
      a.is_write = is_write;
      a.phase = phase;
      node.accesses.push_back(a);
    }
  };
  add(contract.pre_reads, false, Phase::kPre);
  add(contract.reads, false, Phase::kPost);
  add(contract.pre_writes, true, Phase::kPre);
  add(contract.writes, true, Phase::kPost);
  graph_.nodes.push_back(std::move(node));
  return *this;
}

GraphBuilder& GraphBuilder::edge(const std::string& from, const std::string& to, EdgeKind kind) {
  graph_.edges.push_back({find_node(graph_, from).value(), find_node(graph_, to).value(), kind});
  return *this;
}

std::vector<Mutant> all_mutants(const Graph& graph) { return Mutator(graph).run(); }

Graph random_graph(RngSequence& rng, uint32_t max_nodes) {
  Graph g;
  const auto num_nodes = static_cast<uint32_t>(2 + rng.below(max_nodes - 1));
  const auto num_buffers = static_cast<uint32_t>(1 + rng.below(3));
  for (uint32_t b = 0; b < num_buffers; ++b) g.buffers.push_back({fmt::format("b{}", b), 256});
  for (uint32_t n = 0; n < num_nodes; ++n) {
    Node node;
    node.name = std::string(1, static_cast<char>('A' + n));
    // Most real kernels wait; a third of these does not, or not always.
    node.waits = rng.below(3) != 0 ? Waits::kAll : static_cast<Waits>(rng.below(2));
    node.trigger = static_cast<Trigger>(rng.below(3));
    node.fence = rng.below(3) == 0 ? Fence::kGpu : Fence::kNone;
    node.proxy_fence = rng.below(2) == 0;
    node.grid = num_nodes <= 3 ? 2 : static_cast<uint32_t>(1 + rng.below(2));
    const uint64_t num_accesses = 1 + rng.below(2);
    for (uint64_t i = 0; i < num_accesses; ++i) {
      Access a;
      a.buffer = static_cast<uint32_t>(rng.below(num_buffers));
      a.begin = rng.below(2) * 128;
      a.end = a.begin == 0 && rng.below(3) == 0 ? 256 : a.begin + 128;
      a.is_write = rng.below(2) == 0;
      a.phase = rng.below(3) == 0 ? Phase::kPre : Phase::kPost;
      if (!a.is_write && rng.below(6) == 0) a.means = Means::kReadOnly;
      if (rng.below(6) == 0) a.means = a.means == Means::kGeneric ? Means::kTma : a.means;
      a.ordered_by = rng.below(3) == 0 ? OrderedBy::kBarrier : OrderedBy::kWait;
      const bool can_precede =
          node.trigger == Trigger::kAfterWait || (node.trigger == Trigger::kBeforeWait && a.phase == Phase::kPre);
      a.before_trigger = can_precede && rng.below(2) == 0;
      node.accesses.push_back(a);
    }
    g.nodes.push_back(std::move(node));
  }
  for (uint32_t k = 1; k < num_nodes; ++k)
    for (uint32_t y = 0; y < k; ++y) {
      if (rng.below(y + 1 == k ? 5 : 3) != 0 && y + 1 != k) continue;
      if (y + 1 == k && rng.below(6) == 0) continue;
      constexpr EdgeKind kKinds[] = {
          EdgeKind::kFull,         EdgeKind::kFull,         EdgeKind::kProgrammatic, EdgeKind::kProgrammatic,
          EdgeKind::kProgrammatic, EdgeKind::kProgrammatic, EdgeKind::kBlockStart,   EdgeKind::kLaunchCompletion};
      g.edges.push_back({y, k, kKinds[rng.below(std::size(kKinds))]});
    }
  return g;
}

std::string fault_path(const std::string& file) { return fmt::format("{}/{}", kFaultFolder, file); }

std::vector<std::string> fault_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFaultFolder)) {
    const std::string file = entry.path().filename().string();
    constexpr std::string_view kSuffix = ".expect.json";
    if (file.size() > kSuffix.size() && file.ends_with(kSuffix))
      names.push_back(file.substr(0, file.size() - kSuffix.size()));
  }
  std::ranges::sort(names);
  return names;
}

TEST(LaunchMutants, EveryChangeLeavesAnotherValidGraph) {
  Graph g = GraphBuilder()
                .kernel("A", {.trigger = Trigger::kBeforeWait, .pre_writes = {"x"}})
                .kernel("B", {.waits = Waits::kAll, .reads = {"x"}, .writes = {"y"}})
                .edge("A", "B")
                .graph();
  const std::vector<Mutant> mutants = all_mutants(g);
  for (const Mutant& m : mutants) EXPECT_TRUE(check_graph(m.graph)) << m.change;
  // Of the edge: drop, 3 kinds. Of each node: 2 waits, 2 triggers, a fence, a proxy fence. Of A's store: phase (a store
  // after the wait and before a trigger that precedes it makes no sense), trigger, TMA. Of B's accesses, which have no
  // trigger to precede: phase and TMA, and the read-only path of the load. One alias.
  EXPECT_EQ(mutants.size(), 4U + 2 * 6 + 3 + 3 + 2 + 1);
}

}  // namespace megartp::launch::test
