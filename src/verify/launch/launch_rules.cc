#include "verify/launch/launch_rules.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::launch {
namespace {

constexpr uint32_t kSmemReservedPerCta = 1024;

Finding finding(Rule rule, Severity severity, std::vector<uint32_t> nodes, std::string message) {
  Finding f;
  f.rule = rule;
  f.severity = severity;
  f.nodes = std::move(nodes);
  f.message = std::move(message);
  return f;
}

std::string edge_name(const Graph& graph, const Edge& e) {
  return fmt::format("edge {} -> {}", graph.nodes[e.from].name, graph.nodes[e.to].name);
}

// What one SM has to give.
struct Room {
  uint64_t registers, threads, ctas, smem_bytes;
  bool take(const Node& n, uint64_t count) {
    const uint64_t r = uint64_t{n.registers} * n.threads * count, t = uint64_t{n.threads} * count;
    const uint64_t s = uint64_t{n.smem_bytes + kSmemReservedPerCta} * count;
    if (r > registers || t > threads || count > ctas || s > smem_bytes) return false;
    registers -= r;
    threads -= t;
    ctas -= count;
    smem_bytes -= s;
    return true;
  }
};
Room room_of(const Device& d) { return {d.registers, d.threads, d.ctas, d.smem_bytes}; }

uint64_t resident_ctas(const Device& device, const Node& node) {
  return node.resident_ctas != 0 ? node.resident_ctas : uint64_t{ctas_per_sm(device, node)} * device.num_sms;
}

bool must_be_resident(const Node& node) { return node.is_cooperative || !node.spins_on.empty(); }

// SMs on which CTAs of the kernel may stand in the worst spread.
uint64_t sms_touched(const Device& device, const Node& node) { return std::min(node.grid, device.num_sms); }

// Whether all CTAs of `k` find room although everything in `others` may run at the same time: by SMs that the others
// cannot reach.
bool fits_beside(const Graph& graph, uint32_t k, const std::vector<uint32_t>& others) {
  const Node& node = graph.nodes[k];
  uint64_t taken = 0;
  for (const uint32_t o : others) taken += sms_touched(graph.device, graph.nodes[o]);
  const uint64_t resident = resident_ctas(graph.device, node);
  const uint64_t per_sm = std::max<uint64_t>(1, resident / graph.device.num_sms);
  return taken + (node.grid + per_sm - 1) / per_sm <= graph.device.num_sms && node.grid <= resident;
}

void check_spinner(const Graph& graph, const Order& order, uint32_t k, std::vector<Finding>& out) {
  const Node& node = graph.nodes[k];
  const uint64_t resident = resident_ctas(graph.device, node);
  if (resident == 0) {
    out.push_back(
        finding(Rule::kR10, Severity::kError, {k},
                fmt::format("{} needs all its {} CTAs resident at once and its contract does not say how many "
                            "fit: give resident_ctas, or threads, registers and smem_bytes",
                            node.name, node.grid)));
    return;
  }
  if (node.grid > resident) {
    out.push_back(finding(Rule::kR10, Severity::kError, {k},
                          fmt::format("{} needs all its {} CTAs resident at once, but {} holds {}: it hangs", node.name,
                                      node.grid, graph.device.name, resident)));
    return;
  }
  std::vector<uint32_t> others;
  bool other_needs_room = false;
  for (uint32_t o = 0; o < graph.nodes.size(); ++o) {
    if (o == k || graph.nodes[o].kind != NodeKind::kKernel || !order.may_overlap(o, k)) continue;
    others.push_back(o);
    other_needs_room |= must_be_resident(graph.nodes[o]);
  }
  if (others.empty() || fits_beside(graph, k, others)) return;
  const auto loose = std::ranges::find_if(
      graph.edges, [k](const Edge& e) { return (e.from == k || e.to == k) && e.kind != EdgeKind::kFull; });
  if (loose == graph.edges.end() && !other_needs_room) return;
  std::string list;
  for (const uint32_t o : others)
    list += fmt::format("{}{} ({} CTAs)", list.empty() ? "" : ", ", graph.nodes[o].name, graph.nodes[o].grid);
  std::string why = loose != graph.edges.end()
                        ? fmt::format("its {} is {}", edge_name(graph, *loose), to_string(loose->kind))
                        : "another of them waits for room as well";
  std::vector<uint32_t> nodes{k};
  nodes.insert(nodes.end(), others.begin(), others.end());
  Finding f = finding(Rule::kR10, Severity::kError, std::move(nodes),
                      fmt::format("{} spins until all its {} CTAs are resident, may run beside {}, and {}: nothing "
                                  "proves that {} has room for all of them",
                                  node.name, node.grid, list, why, graph.device.name));
  if (loose != graph.edges.end()) f.edge = static_cast<uint32_t>(loose - graph.edges.begin());
  out.push_back(std::move(f));
}

}  // namespace

uint32_t ctas_per_sm(const Device& device, const Node& node) {
  if (node.threads == 0)
    return node.resident_ctas == 0 ? 0 : std::max<uint32_t>(1, node.resident_ctas / device.num_sms);
  uint32_t count = 0;
  for (Room room = room_of(device); room.take(node, 1);) ++count;
  return count;
}

void check_waits(const Graph& graph, const std::vector<char>& is_blamed, std::vector<Finding>& out) {
  std::vector<std::optional<uint32_t>> loose_in(graph.nodes.size());
  for (uint32_t e = 0; e < graph.edges.size(); ++e)
    if (is_waited_for(graph.edges[e].kind)) loose_in[graph.edges[e].to] = e;
  for (uint32_t k = 0; k < graph.nodes.size(); ++k) {
    const Node& node = graph.nodes[k];
    if (!loose_in[k] || waits_always(node)) continue;
    const bool explicit_trigger = graph.nodes[graph.edges[*loose_in[k]].from].trigger != Trigger::kNone;
    std::string message = fmt::format(
        "{} is launched through the programmatic {} and {}", node.name, edge_name(graph, graph.edges[*loose_in[k]]),
        node.waits == Waits::kNone ? "never waits" : "does not wait in every CTA and on every path");
    if (is_blamed[k] == 0)
      message += explicit_trigger ? "; nothing relies on it here, but PTX asks for a wait where a producer triggers"
                                  : "; nothing relies on it here";
    Finding f = finding(Rule::kR1, is_blamed[k] != 0 ? Severity::kError : Severity::kWarning, {k}, std::move(message));
    f.edge = loose_in[k];
    out.push_back(std::move(f));
  }
}

void check_edge_kinds(const Graph& graph, std::vector<Finding>& out) {
  for (uint32_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& e = graph.edges[i];
    if (e.kind == EdgeKind::kFull) continue;
    for (const uint32_t n : {e.from, e.to}) {
      if (graph.nodes[n].kind == NodeKind::kKernel) continue;
      Finding f = finding(Rule::kR7, Severity::kError, {n},
                          fmt::format("{} is {}, but {} is a {}: only kernels have such edges", edge_name(graph, e),
                                      to_string(e.kind), graph.nodes[n].name, to_string(graph.nodes[n].kind)));
      f.edge = i;
      out.push_back(std::move(f));
    }
  }
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].kind != NodeKind::kMemset) continue;
    bool between = false, in = false;
    for (const Edge& e : graph.edges) in |= e.to == n;
    for (const Edge& e : graph.edges) between |= e.from == n && in;
    if (between)
      out.push_back(
          finding(Rule::kR7, Severity::kWarning, {n},
                  fmt::format("{} is a memset between kernels: its edges are full, so nothing overlaps there; "
                              "reset the buffer inside a kernel instead",
                              graph.nodes[n].name)));
  }
}

void check_replays(const Graph& graph, std::vector<Finding>& out) {
  if (graph.replay_streams < 2) return;
  for (uint32_t n = 0; n < graph.nodes.size(); ++n)
    for (const Access& a : graph.nodes[n].accesses)
      if (a.is_write) {
        out.push_back(finding(
            Rule::kR9, Severity::kError, {n},
            fmt::format("the graph is replayed on {} streams, which nothing orders, and {} writes {}: "
                        "replay on one stream, or give each stream buffers of its own",
                        graph.replay_streams, graph.nodes[n].name, range_text(graph, a.buffer, a.begin, a.end))));
        return;
      }
}

void check_progress(const Graph& graph, const Order& order, std::vector<Finding>& out) {
  for (uint32_t k = 0; k < graph.nodes.size(); ++k) {
    const Node& node = graph.nodes[k];
    for (const uint32_t spun : node.spins_on)
      if (!order.before_start(spun, Moment::kComplete, k))
        out.push_back(finding(Rule::kR10, Severity::kError, {k, spun},
                              fmt::format("{} spins on what {} produces, but {} need not be complete when {} starts: "
                                          "while the CTAs of {} spin they may hold the room that {} needs",
                                          node.name, graph.nodes[spun].name, graph.nodes[spun].name, node.name,
                                          node.name, graph.nodes[spun].name)));
    if (node.is_cooperative) check_spinner(graph, order, k, out);
  }
  for (uint32_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& e = graph.edges[i];
    if (e.kind != EdgeKind::kBlockStart && e.kind != EdgeKind::kLaunchCompletion) continue;
    if (graph.nodes[e.from].priority == graph.nodes[e.to].priority) continue;
    Finding f = finding(Rule::kR10, Severity::kError, {e.from, e.to},
                        fmt::format("{} is {} between priorities {} and {}: CTAs of {} may start first and take the "
                                    "room of {}",
                                    edge_name(graph, e), to_string(e.kind), graph.nodes[e.from].priority,
                                    graph.nodes[e.to].priority, graph.nodes[e.to].name, graph.nodes[e.from].name));
    f.edge = i;
    out.push_back(std::move(f));
  }
}

void check_counters(const Graph& graph, std::vector<Finding>& out) {
  for (uint32_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind != BufferKind::kCounter || buffer.advances) continue;
    std::optional<uint32_t> counts;
    bool resets = false;
    for (uint32_t n = 0; n < graph.nodes.size(); ++n)
      for (const Access& a : graph.nodes[n].accesses) {
        if (a.buffer != b || !a.is_write) continue;
        resets |= a.resets;
        if (!a.resets && !counts) counts = n;
      }
    if (counts && !resets)
      out.push_back(
          finding(Rule::kR11, Severity::kError, {*counts},
                  fmt::format("{} counts on {}, which no node resets and which does not advance from replay to "
                              "replay: the second replay finds the counts of the first",
                              graph.nodes[*counts].name, range_text(graph, b, 0, buffer.num_bytes))));
  }
}

void check_code(const Graph& graph, std::vector<Finding>& out) {
  for (uint32_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& e = graph.edges[i];
    const Node& to = graph.nodes[e.to];
    if (!is_waited_for(e.kind) || to.kind != NodeKind::kKernel) continue;
    std::string message;
    if (to.code_waits && *to.code_waits < to.waits)
      message = fmt::format("the contract of {} says that it waits ({}), its binary does not ({}); {} is programmatic",
                            to.name, to_string(to.waits), to_string(*to.code_waits), edge_name(graph, e));
    else if (!to.is_inspected)
      message = fmt::format("{} is programmatic, but nobody has read the code of {}: give it full in-edges",
                            edge_name(graph, e), to.name);
    if (message.empty()) continue;
    Finding f = finding(Rule::kR12, Severity::kError, {e.to}, std::move(message));
    f.edge = i;
    out.push_back(std::move(f));
  }
}

void check_use(const Graph& graph, std::vector<Finding>& out) {
  for (uint32_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& e = graph.edges[i];
    if (e.kind != EdgeKind::kProgrammatic) continue;
    const Node& from = graph.nodes[e.from];
    const Node& to = graph.nodes[e.to];
    const auto warn = [&](std::string message) {
      Finding f = finding(Rule::kR13, Severity::kWarning, {e.from, e.to}, std::move(message));
      f.edge = i;
      out.push_back(std::move(f));
    };
    const bool nothing_early =
        std::ranges::none_of(to.accesses, [&](const Access& a) { return is_early(to, a); }) && waits_always(to);
    if (nothing_early && to.prologue == Prologue::kTrivial)
      warn(fmt::format("{}: {} does nothing before its wait, so the edge saves launch latency only",
                       edge_name(graph, e), to.name));
    if (from.threads == 0 || to.threads == 0) continue;
    Room room = room_of(graph.device);
    const uint64_t spread = (from.grid + graph.device.num_sms - 1) / graph.device.num_sms;
    const uint64_t beside = std::min<uint64_t>(spread, ctas_per_sm(graph.device, from));
    if (from.grid >= graph.device.num_sms && (!room.take(from, beside) || !room.take(to, 1)))
      warn(fmt::format("{}: no CTA of {} fits on an SM beside {} of {}, so it cannot start early", edge_name(graph, e),
                       to.name, beside, from.name));
  }
}

void check_advice(const Graph& graph, const Order& order, std::vector<Finding>& out) {
  std::vector<char> has_loose_in(graph.nodes.size(), 0);
  for (const Edge& e : graph.edges)
    if (e.kind != EdgeKind::kFull) has_loose_in[e.to] = 1;
  for (uint32_t k = 0; k < graph.nodes.size(); ++k)
    for (const Access& a : graph.nodes[k].accesses)
      if (a.is_write && has_loose_in[k] != 0 && graph.nodes[k].waits != Waits::kNone && is_early(graph.nodes[k], a)) {
        out.push_back(finding(Rule::kR3, Severity::kWarning, {k},
                              fmt::format("{} writes {} before its wait", graph.nodes[k].name,
                                          range_text(graph, a.buffer, a.begin, a.end))));
        break;
      }
  for (const Conflict& c : find_conflicts(graph)) {
    const Node& x = graph.nodes[c.first];
    const Node& k = graph.nodes[c.second];
    const Access& a = x.accesses[c.first_access];
    const Access& b = k.accesses[c.second_access];
    if (!a.is_write || b.is_write || b.means != Means::kTma || b.proxy_fenced || a.means == Means::kTma) continue;
    if (!is_early(k, b) || !is_published(x, a, k, b)) continue;
    if (order.before_start(c.first, Moment::kComplete, c.second)) continue;
    Finding f =
        finding(Rule::kR6, Severity::kWarning, {c.first, c.second},
                fmt::format("{} learns of {} from the trigger of {} and loads it by TMA without a proxy fence of "
                            "its own in between",
                            k.name, range_text(graph, a.buffer, c.begin, c.end), x.name));
    f.conflict = c;
    out.push_back(std::move(f));
  }
}

}  // namespace megartp::launch
