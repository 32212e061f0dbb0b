#include <array>
#include <map>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/json_fields.h"
#include "graph/text.h"
#include "verify/launch/launch_json.h"

namespace megartp::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int64_t kMaxCount = int64_t{1} << 31;
constexpr size_t kMaxNodes = size_t{1} << 13;

Result<int64_t> read_integer(const JsonFields& f, std::string_view key, int64_t low, int64_t high, int64_t absent) {
  const Json* value = f.find(key);
  if (value == nullptr) return absent;
  const std::optional<int64_t> number = json_integer(*value);
  if (!number || *number < low || *number > high)
    return malformed_json(f.path(key), fmt::format("expected an integer from {} to {}", low, high));
  return *number;
}

Result<uint32_t> read_count(const JsonFields& f, std::string_view key, int64_t low, uint32_t absent) {
  return static_cast<uint32_t>(MEGARTP_TRY(read_integer(f, key, low, kMaxCount, absent)));
}

Result<std::string> read_name(const JsonFields& f) {
  std::string name = MEGARTP_TRY(f.string("name"));
  if (!is_plain_name(name))
    return malformed_json(f.path("name"), fmt::format("{}: expected 1 to 256 printable ASCII characters without quotes "
                                                      "and backslashes",
                                                      quote_name(name)));
  return name;
}

template <class E>
Result<E> read_enum(const JsonFields& f, std::string_view key, E absent) {
  if (f.find(key) == nullptr) return absent;
  const std::string name = MEGARTP_TRY(f.string(key));
  const auto names = enum_names(absent);
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<E>(i);
  return malformed_json(f.path(key), fmt::format("{} is none of {}", quote_name(name), fmt::join(names, ", ")));
}

// Names with their positions.
class NameTable {
 public:
  // Repeated names keep the first position; check_graph refuses them later.
  uint32_t intern(const std::string& name) {
    return index_.emplace(name, static_cast<uint32_t>(index_.size())).first->second;
  }
  Result<uint32_t> find(const std::string& name, const std::string& where, std::string_view what) const {
    const auto it = index_.find(name);
    if (it == index_.end()) return malformed_json(where, fmt::format("there is no {} {}", what, quote_name(name)));
    return it->second;
  }
  std::vector<std::string> list() const {
    std::vector<std::string> names(index_.size());
    for (const auto& [name, i] : index_) names[i] = name;
    return names;
  }

 private:
  std::map<std::string, uint32_t> index_;
};

class Reader {
 public:
  Result<LaunchInput> read(std::string_view text) {
    const Json root = MEGARTP_TRY(parse_json(text));
    constexpr std::string_view kRequired[] = {"launch", "buffers", "nodes"};
    constexpr std::string_view kOptional[] = {"edges", "program", "device", "capture", "replays", "replay_streams"};
    const JsonFields f = MEGARTP_TRY(JsonFields::of(root, "", kRequired, kOptional));
    if (json_integer(*f.find("launch")) != kFormatVersion)
      return malformed_json("launch", fmt::format("unknown version of the launch format, expected {}", kFormatVersion));
    MEGARTP_TRY(read_device(f));
    MEGARTP_TRY(read_buffers(*MEGARTP_TRY(f.array("buffers"))));
    MEGARTP_TRY(read_nodes(*MEGARTP_TRY(f.array("nodes"))));
    graph_.replay_streams = MEGARTP_TRY(read_count(f, "replay_streams", 1, 1));
    if ((f.find("program") == nullptr) == (f.find("edges") == nullptr))
      return malformed_json("file", "expected either 'edges' or 'program'");
    if (f.find("program") != nullptr) return read_program(f);
    for (const std::string_view key : {"capture", "replays"})
      if (f.find(key) != nullptr) return malformed_json(std::string(key), "goes with 'program' only");
    MEGARTP_TRY(read_edges(*MEGARTP_TRY(f.array("edges"))));
    MEGARTP_TRY(as_parse_error(check_graph(graph_)));
    return LaunchInput(std::move(graph_));
  }

 private:
  // It is the file that is wrong, whatever check refuses it.
  static Status as_parse_error(Status status) {
    if (!status) status.error().code = ErrorCode::kParse;
    return status;
  }

  Status read_device(const JsonFields& root) {
    const Json* value = root.find("device");
    if (value == nullptr) return {};
    constexpr std::string_view kKeys[] = {"name", "sms", "registers", "threads", "ctas", "smem_bytes"};
    const JsonFields f = MEGARTP_TRY(JsonFields::of(*value, "device", {}, kKeys));
    Device& d = graph_.device;
    if (f.find("name") != nullptr) d.name = MEGARTP_TRY(f.string("name"));
    d.num_sms = MEGARTP_TRY(read_count(f, "sms", 1, d.num_sms));
    d.registers = MEGARTP_TRY(read_count(f, "registers", 1, d.registers));
    d.threads = MEGARTP_TRY(read_count(f, "threads", 1, d.threads));
    d.ctas = MEGARTP_TRY(read_count(f, "ctas", 1, d.ctas));
    d.smem_bytes = MEGARTP_TRY(read_count(f, "smem_bytes", 0, d.smem_bytes));
    return {};
  }

  Status read_buffers(const Json& list) {
    constexpr std::string_view kRequired[] = {"name", "bytes"};
    constexpr std::string_view kOptional[] = {"kind", "advances"};
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonFields f = MEGARTP_TRY(JsonFields::of(list[i], fmt::format("buffers[{}]", i), kRequired, kOptional));
      Buffer b;
      b.name = MEGARTP_TRY(read_name(f));
      b.num_bytes = static_cast<uint64_t>(MEGARTP_TRY(read_integer(f, "bytes", 1, kMaxBytes, 0)));
      b.kind = MEGARTP_TRY(read_enum(f, "kind", BufferKind::kData));
      b.advances = MEGARTP_TRY(f.boolean("advances"));
      if (buffers_.intern(b.name) != i)
        return malformed_json(f.path("name"), "a name used twice: " + quote_name(b.name));
      graph_.buffers.push_back(std::move(b));
    }
    return {};
  }

  Status read_nodes(const Json& list) {
    if (list.size() > kMaxNodes) return malformed_json("nodes", fmt::format("more than {} nodes", kMaxNodes));
    std::vector<std::vector<std::string>> spins;
    for (size_t i = 0; i < list.size(); ++i) {
      constexpr std::string_view kRequired[] = {"name"};
      constexpr std::string_view kOptional[] = {
          "kind",         "reads",       "writes",     "waits",    "trigger",       "fence",   "proxy_fence",
          "bulk_drained", "inspected",   "code_waits", "grid",     "resident_ctas", "threads", "registers",
          "smem_bytes",   "cooperative", "spins_on",   "priority", "sync_domain",   "prologue"};
      const JsonFields f = MEGARTP_TRY(JsonFields::of(list[i], fmt::format("nodes[{}]", i), kRequired, kOptional));
      graph_.nodes.push_back(MEGARTP_TRY(read_node(f)));
      spins.push_back(MEGARTP_TRY(f.names("spins_on")));
      if (nodes_.intern(graph_.nodes.back().name) != i)
        return malformed_json(f.path("name"), "a name used twice: " + quote_name(graph_.nodes.back().name));
    }
    for (size_t i = 0; i < spins.size(); ++i)
      for (const std::string& name : spins[i])
        graph_.nodes[i].spins_on.push_back(
            MEGARTP_TRY(nodes_.find(name, fmt::format("nodes[{}].spins_on", i), "node")));
    return {};
  }

  Result<Node> read_node(const JsonFields& f) {
    Node n;
    n.name = MEGARTP_TRY(read_name(f));
    n.kind = MEGARTP_TRY(read_enum(f, "kind", NodeKind::kKernel));
    n.waits = MEGARTP_TRY(read_enum(f, "waits", Waits::kNone));
    n.trigger = MEGARTP_TRY(read_enum(f, "trigger", Trigger::kNone));
    n.fence = MEGARTP_TRY(read_enum(f, "fence", Fence::kNone));
    n.proxy_fence = MEGARTP_TRY(f.boolean("proxy_fence"));
    n.bulk_drained = MEGARTP_TRY(f.boolean("bulk_drained"));
    if (f.find("inspected") != nullptr) n.is_inspected = MEGARTP_TRY(f.boolean("inspected"));
    if (f.find("code_waits") != nullptr) n.code_waits = MEGARTP_TRY(read_enum(f, "code_waits", Waits::kNone));
    n.grid = MEGARTP_TRY(read_count(f, "grid", 1, 1));
    n.resident_ctas = MEGARTP_TRY(read_count(f, "resident_ctas", 1, 0));
    n.threads = MEGARTP_TRY(read_count(f, "threads", 1, 0));
    n.registers = MEGARTP_TRY(read_count(f, "registers", 1, 0));
    n.smem_bytes = MEGARTP_TRY(read_count(f, "smem_bytes", 0, 0));
    n.is_cooperative = MEGARTP_TRY(f.boolean("cooperative"));
    n.priority = static_cast<int32_t>(MEGARTP_TRY(read_integer(f, "priority", -1000, 1000, 0)));
    n.sync_domain = MEGARTP_TRY(read_count(f, "sync_domain", 0, 0));
    n.prologue = MEGARTP_TRY(read_enum(f, "prologue", Prologue::kUnknown));
    MEGARTP_TRY(read_accesses(f, "reads", false, n));
    MEGARTP_TRY(read_accesses(f, "writes", true, n));
    return n;
  }

  Status read_accesses(const JsonFields& node, std::string_view key, bool is_write, Node& out) {
    if (node.find(key) == nullptr) return {};
    const Json& list = *MEGARTP_TRY(node.array(key));
    constexpr std::string_view kRequired[] = {"buffer"};
    constexpr std::string_view kRead[] = {"range", "phase", "how", "ordered_by", "before_trigger", "proxy_fenced"};
    constexpr std::string_view kWrite[] = {"range", "phase", "how", "before_trigger", "resets"};
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("{}[{}]", node.path(key), i);
      const JsonFields f = MEGARTP_TRY(is_write ? JsonFields::of(list[i], where, kRequired, kWrite)
                                                : JsonFields::of(list[i], where, kRequired, kRead));
      auto access = read_access(f, is_write, out);
      if (!access) return tl::unexpected(std::move(access).error().with("node", quote_name(out.name)));
      out.accesses.push_back(*access);
    }
    return {};
  }

  Result<Access> read_access(const JsonFields& f, bool is_write, const Node& node) {
    Access a;
    a.is_write = is_write;
    a.buffer = MEGARTP_TRY(buffers_.find(MEGARTP_TRY(f.string("buffer")), f.path("buffer"), "buffer"));
    a.end = graph_.buffers[a.buffer].num_bytes;
    if (const Json* range = f.find("range"); range != nullptr) {
      std::array<std::optional<int64_t>, 2> ends;
      if (range->is_array() && range->size() == 2) ends = {json_integer((*range)[0]), json_integer((*range)[1])};
      if (!ends[0] || !ends[1] || *ends[0] < 0 || *ends[1] < 0)
        return malformed_json(f.path("range"), "expected [first byte, end byte]");
      a.begin = static_cast<uint64_t>(*ends[0]);
      a.end = static_cast<uint64_t>(*ends[1]);
    }
    a.phase = MEGARTP_TRY(read_enum(f, "phase", node.waits == Waits::kNone ? Phase::kPre : Phase::kPost));
    a.means = MEGARTP_TRY(read_enum(f, "how", Means::kGeneric));
    a.ordered_by = MEGARTP_TRY(read_enum(f, "ordered_by", OrderedBy::kWait));
    a.before_trigger = MEGARTP_TRY(f.boolean("before_trigger"));
    a.proxy_fenced = MEGARTP_TRY(f.boolean("proxy_fenced"));
    a.resets = MEGARTP_TRY(f.boolean("resets"));
    return a;
  }

  Status read_edges(const Json& list) {
    constexpr std::string_view kRequired[] = {"from", "to"};
    constexpr std::string_view kOptional[] = {"kind"};
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonFields f = MEGARTP_TRY(JsonFields::of(list[i], fmt::format("edges[{}]", i), kRequired, kOptional));
      Edge e;
      e.from = MEGARTP_TRY(nodes_.find(MEGARTP_TRY(f.string("from")), f.path("from"), "node"));
      e.to = MEGARTP_TRY(nodes_.find(MEGARTP_TRY(f.string("to")), f.path("to"), "node"));
      e.kind = MEGARTP_TRY(read_enum(f, "kind", EdgeKind::kFull));
      graph_.edges.push_back(e);
    }
    return {};
  }

  Result<LaunchInput> read_program(const JsonFields& root) {
    Program p;
    const Json& list = *MEGARTP_TRY(root.array("program"));
    for (size_t i = 0; i < list.size(); ++i) p.ops.push_back(MEGARTP_TRY(read_op(list[i], i)));
    p.streams = streams_.list();
    p.events = events_.list();
    if (root.find("capture") != nullptr) p.is_captured = MEGARTP_TRY(root.boolean("capture"));
    if (p.is_captured && root.find("replays") != nullptr)
      return malformed_json("replays", "replays of a captured program follow each other; only others are unrolled");
    p.num_replays = static_cast<uint32_t>(MEGARTP_TRY(read_integer(root, "replays", 1, 16, p.num_replays)));
    p.device = graph_.device;
    p.buffers = std::move(graph_.buffers);
    p.nodes = std::move(graph_.nodes);
    p.replay_streams = graph_.replay_streams;
    auto lowered = lower_program(p);
    if (!lowered) MEGARTP_TRY(as_parse_error(tl::unexpected(std::move(lowered).error())));
    return LaunchInput(std::move(p));
  }

  Result<StreamOp> read_op(const Json& value, size_t index) {
    const std::string where = fmt::format("program[{}]", index);
    constexpr std::string_view kStream[] = {"stream"};
    constexpr std::string_view kKinds[] = {
        "launch", "record", "wait", "pss", "programmatic_event", "at_block_start", "launch_completion_event"};
    const JsonFields f = MEGARTP_TRY(JsonFields::of(value, where, kStream, kKinds));
    const bool launch = f.find("launch") != nullptr, record = f.find("record") != nullptr,
               wait = f.find("wait") != nullptr;
    if (launch + record + wait != 1) return malformed_json(where, "expected one of 'launch', 'record' and 'wait'");
    StreamOp op;
    op.stream = streams_.intern(MEGARTP_TRY(f.string("stream")));
    if (!launch) {
      for (const std::string_view key : {"pss", "programmatic_event", "at_block_start", "launch_completion_event"})
        if (f.find(key) != nullptr) return malformed_json(f.path(key), "goes with 'launch' only");
      op.kind = record ? StreamOpKind::kRecord : StreamOpKind::kWait;
      op.event = events_.intern(MEGARTP_TRY(f.string(record ? "record" : "wait")));
      return op;
    }
    op.node = MEGARTP_TRY(nodes_.find(MEGARTP_TRY(f.string("launch")), f.path("launch"), "node"));
    op.is_programmatic = MEGARTP_TRY(f.boolean("pss"));
    op.at_block_start = MEGARTP_TRY(f.boolean("at_block_start"));
    for (const auto& [key, event] : {std::pair{"programmatic_event", &op.programmatic_event},
                                     std::pair{"launch_completion_event", &op.launch_completion_event}}) {
      if (f.find(key) == nullptr) continue;
      if (graph_.nodes[op.node].kind != NodeKind::kKernel)
        return malformed_json(f.path(key), fmt::format("node {} is no kernel", quote_name(graph_.nodes[op.node].name)));
      *event = events_.intern(MEGARTP_TRY(f.string(key)));
    }
    if (op.at_block_start && !op.programmatic_event)
      return malformed_json(f.path("at_block_start"), "goes with 'programmatic_event' only");
    return op;
  }

  Graph graph_;
  NameTable buffers_, nodes_, streams_, events_;
};

}  // namespace

Result<LaunchInput> launch_from_json(std::string_view text) {
  try {
    return Reader().read(text);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, fmt::format("no memory to read a launch file of {} bytes", text.size()));
  }
}

Result<LoweredProgram> to_graph(const LaunchInput& input) {
  if (const auto* program = std::get_if<Program>(&input)) return lower_program(*program);
  return LoweredProgram{std::get<Graph>(input), {}};
}

}  // namespace megartp::launch
