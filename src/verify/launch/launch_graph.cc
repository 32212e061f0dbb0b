#include "verify/launch/launch_graph.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace megartp::launch {
namespace {

constexpr std::string_view kNodeKinds[] = {"kernel", "memset", "memcpy", "host", "empty", "conditional", "child"};
constexpr std::string_view kWaits[] = {"none", "some", "all"};
constexpr std::string_view kTriggers[] = {"none", "after_wait", "before_wait"};
constexpr std::string_view kPhases[] = {"pre", "post"};
constexpr std::string_view kMeans[] = {"generic", "read_only", "tma"};
constexpr std::string_view kOrderedBy[] = {"wait", "barrier"};
constexpr std::string_view kFences[] = {"none", "cta", "gpu", "system"};
constexpr std::string_view kPrologues[] = {"unknown", "trivial", "useful"};
constexpr std::string_view kBufferKinds[] = {"data", "workspace", "counter"};
constexpr std::string_view kEdgeKinds[] = {"full", "programmatic", "block_start", "launch_completion"};

tl::unexpected<Error> bad(std::string sentence) { return make_error(ErrorCode::kInvalidArgument, std::move(sentence)); }

Status check_access(const Graph& graph, const Node& node, const Access& a) {
  const std::string_view verb = a.is_write ? "writes" : "reads";
  if (a.buffer >= graph.buffers.size()) return bad(fmt::format("node '{}' {} an unknown buffer", node.name, verb));
  const Buffer& buffer = graph.buffers[a.buffer];
  if (a.begin >= a.end || a.end > buffer.num_bytes)
    return bad(fmt::format("node '{}' {} {}, which is not a range of the buffer's {} bytes", node.name, verb,
                           range_text(graph, a.buffer, a.begin, a.end), buffer.num_bytes));
  const std::string what = fmt::format("node '{}' {} {}", node.name, verb, range_text(graph, a.buffer, a.begin, a.end));
  if (a.is_write && a.means == Means::kReadOnly) return bad(what + " through the read-only path");
  if (a.resets && (!a.is_write || buffer.kind != BufferKind::kCounter))
    return bad(what + ": only a write of a counter can reset it");
  if (a.before_trigger && a.phase == Phase::kPost && node.trigger == Trigger::kBeforeWait)
    return bad(what + " after the wait and before the trigger, but its trigger stands before the wait");
  if (a.before_trigger && node.trigger == Trigger::kNone)
    return bad(what + " before the trigger, but the node has none");
  return {};
}

Status check_node(const Graph& graph, uint32_t index) {
  const Node& node = graph.nodes[index];
  if (!is_plain_name(node.name))
    return bad(
        fmt::format("node {}: a name is 1 to 256 printable ASCII characters without quotes and backslashes", index));
  if (node.grid == 0) return bad(fmt::format("node '{}' has no CTAs", node.name));
  if (node.kind != NodeKind::kKernel && (node.waits != Waits::kNone || node.trigger != Trigger::kNone))
    return bad(fmt::format("node '{}' is a {}: only kernels wait and trigger", node.name, to_string(node.kind)));
  for (const uint32_t spun : node.spins_on)
    if (spun >= graph.nodes.size() || spun == index)
      return bad(fmt::format("node '{}' spins on itself or an unknown node", node.name));
  for (const Access& a : node.accesses) MEGARTP_TRY(check_access(graph, node, a));
  return {};
}

// Every pair of accesses that overlap is looked at, so there must not be too many.
Status check_overlaps(const Graph& graph) {
  constexpr uint64_t kMaxOverlaps = uint64_t{1} << 24;
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> spans(graph.buffers.size());
  std::vector<char> is_written(graph.buffers.size(), 0);
  for (const Node& node : graph.nodes)
    for (const Access& a : node.accesses) {
      spans[a.buffer].emplace_back(a.begin, a.end);
      is_written[a.buffer] |= static_cast<char>(a.is_write);
    }
  uint64_t count = 0;
  for (size_t b = 0; b < spans.size(); ++b) {
    if (is_written[b] == 0) continue;
    std::ranges::sort(spans[b]);
    for (size_t i = 0; i < spans[b].size(); ++i) {
      const auto after =
          std::ranges::lower_bound(spans[b], spans[b][i].second, {}, &std::pair<uint64_t, uint64_t>::first);
      count += static_cast<uint64_t>(after - spans[b].begin()) - i - 1;
    }
    if (count > kMaxOverlaps)
      return make_error(ErrorCode::kOutOfResources,
                        fmt::format("more than {} pairs of accesses overlap, the last ones in buffer '{}'",
                                    kMaxOverlaps, graph.buffers[b].name));
  }
  return {};
}

Status check_edges(const Graph& graph) {
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  for (const Edge& e : graph.edges) {
    if (e.from >= graph.nodes.size() || e.to >= graph.nodes.size()) return bad("an edge joins an unknown node");
    const std::string what = fmt::format("edge '{}' -> '{}'", graph.nodes[e.from].name, graph.nodes[e.to].name);
    if (e.from >= e.to) return bad(what + " goes against the reference order, in which the nodes are listed");
    if (!pairs.emplace(e.from, e.to).second) return bad(what + " is there twice; a pair has one edge");
  }
  return {};
}

}  // namespace

std::span<const std::string_view> enum_names(NodeKind) { return kNodeKinds; }
std::span<const std::string_view> enum_names(Waits) { return kWaits; }
std::span<const std::string_view> enum_names(Trigger) { return kTriggers; }
std::span<const std::string_view> enum_names(Phase) { return kPhases; }
std::span<const std::string_view> enum_names(Means) { return kMeans; }
std::span<const std::string_view> enum_names(OrderedBy) { return kOrderedBy; }
std::span<const std::string_view> enum_names(Fence) { return kFences; }
std::span<const std::string_view> enum_names(Prologue) { return kPrologues; }
std::span<const std::string_view> enum_names(BufferKind) { return kBufferKinds; }
std::span<const std::string_view> enum_names(EdgeKind) { return kEdgeKinds; }

Status check_graph(const Graph& graph) {
  std::set<std::string_view> names;
  for (const Buffer& b : graph.buffers) {
    if (!is_plain_name(b.name))
      return bad("a buffer's name is 1 to 256 printable ASCII characters without quotes and backslashes");
    if (!names.insert(b.name).second) return bad(fmt::format("two buffers are named '{}'", b.name));
    if (b.num_bytes == 0) return bad(fmt::format("buffer '{}' has no bytes", b.name));
    if (b.advances && b.kind != BufferKind::kCounter)
      return bad(fmt::format("buffer '{}' is no counter, so it cannot advance", b.name));
  }
  names.clear();
  for (const Node& n : graph.nodes)
    if (!names.insert(n.name).second) return bad(fmt::format("two nodes are named '{}'", n.name));
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) MEGARTP_TRY(check_node(graph, i));
  if (graph.device.num_sms == 0) return bad("the device has no SMs");
  MEGARTP_TRY(check_edges(graph));
  return check_overlaps(graph);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 256 &&
         std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~' && c != '\'' && c != '\\' && c != '"'; });
}

std::optional<uint32_t> find_node(const Graph& graph, std::string_view name) {
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].name == name) return i;
  return std::nullopt;
}

std::string range_text(const Graph& graph, uint32_t buffer, uint64_t begin, uint64_t end) {
  return fmt::format("{}[{},{})", graph.buffers[buffer].name, begin, end);
}

Early early_reason(const Node& node, const Access& access) {
  if (access.phase == Phase::kPre) return Early::kDeclared;
  if (node.waits == Waits::kNone) return Early::kNeverWaits;
  if (access.is_write || access.means != Means::kReadOnly) return Early::kNotEarly;
  if (access.ordered_by == OrderedBy::kBarrier) return Early::kLifted;
  const auto first_line = [](const Access& a) { return a.begin / kLineBytes; };
  const auto last_line = [](const Access& a) { return (a.end - 1) / kLineBytes; };
  for (const Access& other : node.accesses)
    if (other.phase == Phase::kPre && !other.is_write && other.buffer == access.buffer &&
        first_line(other) <= last_line(access) && first_line(access) <= last_line(other))
      return Early::kMerged;
  return Early::kNotEarly;
}

bool has_release(const Node& writer, const Node& reader) {
  if (writer.trigger == Trigger::kNone) return false;
  return writer.fence == Fence::kSystem || (writer.fence == Fence::kGpu && writer.sync_domain == reader.sync_domain);
}

bool is_published(const Node& writer, const Access& write, const Node& reader, const Access& access) {
  if (!write.before_trigger || !has_release(writer, reader)) return false;
  if (write.means == Means::kTma) return writer.bulk_drained;
  return access.means != Means::kTma || writer.proxy_fence;
}

}  // namespace megartp::launch
