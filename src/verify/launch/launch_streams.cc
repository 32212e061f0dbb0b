#include "verify/launch/launch_streams.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace megartp::launch {
namespace {

constexpr size_t kMaxLaunches = size_t{1} << 13;

// Nodes that the next launch depends on, with the kind of edge that it would get.
using Pending = std::map<uint32_t, EdgeKind>;

// The enumerators go from the strongest edge to the weakest.
void merge(Pending& into, const Pending& from) {
  for (const auto& [node, kind] : from) {
    const auto [it, is_new] = into.emplace(node, kind);
    if (!is_new) it->second = std::min(it->second, kind);
  }
}

class Lowering {
 public:
  explicit Lowering(const Program& program)
      : program_(program),
        streams_(program.streams.size()),
        events_(program.events.size()),
        launches_(program.nodes.size()) {
    out_.graph.device = program.device;
    out_.graph.buffers = program.buffers;
    out_.graph.replay_streams = program.replay_streams;
  }

  Result<LoweredProgram> run() {
    const uint32_t replays = program_.is_captured ? 1 : std::max<uint32_t>(program_.num_replays, 1);
    if (program_.ops.size() * replays > kMaxLaunches)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{} operations in {} replays, more than the {} that are looked at",
                                    program_.ops.size(), replays, kMaxLaunches));
    for (uint32_t r = 0; r < replays; ++r) {
      replay_ = r;
      launches_.assign(program_.nodes.size(), 0);
      instance_.assign(program_.nodes.size(), 0);
      for (size_t i = 0; i < program_.ops.size(); ++i) MEGARTP_TRY(step(program_.ops[i], i));
    }
    if (program_.is_captured) check_joins();
    MEGARTP_TRY(check_graph(out_.graph));
    return std::move(out_);
  }

 private:
  struct Stream {
    Pending pending;
    std::optional<uint32_t> last;  // launch
    bool is_used = false;
  };

  Status step(const StreamOp& op, size_t index) {
    if (op.stream >= streams_.size())
      return make_error(ErrorCode::kInvalidArgument, "an operation on an unknown stream");
    Stream& stream = streams_[op.stream];
    stream.is_used = true;
    switch (op.kind) {
      case StreamOpKind::kRecord: events_[op.event] = stream.pending; return {};
      case StreamOpKind::kWait:
        if (!events_[op.event])
          return make_error(ErrorCode::kInvalidArgument,
                            fmt::format("program[{}]: stream '{}' waits for event '{}', which nothing has recorded",
                                        index, program_.streams[op.stream], program_.events[op.event]));
        merge(stream.pending, *events_[op.event]);
        return {};
      case StreamOpKind::kLaunch: launch(op, stream); return {};
    }
    return {};
  }

  std::string instance_name(const StreamOp& op) {
    const uint32_t count = ++launches_[op.node];
    std::string name = program_.nodes[op.node].name;
    if (count > 1) name += fmt::format("#{}", count);
    if (replay_ > 0) name += fmt::format(" (replay {})", replay_ + 1);
    return name;
  }

  void launch(const StreamOp& op, Stream& stream) {
    const auto index = static_cast<uint32_t>(out_.graph.nodes.size());
    Node node = program_.nodes[op.node];
    node.name = instance_name(op);
    // Spinning is on the launches of the same replay.
    for (uint32_t& spun : node.spins_on) spun = instance_[spun];
    instance_[op.node] = index;
    out_.graph.nodes.push_back(std::move(node));
    const Node& launched = out_.graph.nodes.back();
    Pending pending = stream.pending;
    if (op.is_programmatic) make_programmatic(launched, index, stream, pending);
    for (auto [from, kind] : pending) {
      if (kind != EdgeKind::kFull && launched.kind != NodeKind::kKernel) {
        report(
            Rule::kR7, program_.is_captured ? Severity::kError : Severity::kWarning, {from, index},
            fmt::format("'{}' is a {} and depends on '{}' through a programmatic event: only kernels have such edges{}",
                        launched.name, to_string(launched.kind), out_.graph.nodes[from].name,
                        program_.is_captured ? ", so the capture fails" : "; it waits for the whole kernel"));
        kind = EdgeKind::kFull;
      }
      out_.graph.edges.push_back({from, index, kind});
    }
    stream.pending = {{index, EdgeKind::kFull}};
    stream.last = index;
    if (op.programmatic_event)
      events_[*op.programmatic_event] =
          Pending{{index, op.at_block_start ? EdgeKind::kBlockStart : EdgeKind::kProgrammatic}};
    if (op.launch_completion_event)
      events_[*op.launch_completion_event] = Pending{{index, EdgeKind::kLaunchCompletion}};
  }

  // The attribute concerns the previous launch of the stream, and only when that is a kernel.
  void make_programmatic(const Node& launched, uint32_t index, const Stream& stream, Pending& pending) {
    if (!stream.last) return;
    const Node& previous = out_.graph.nodes[*stream.last];
    if (previous.kind == NodeKind::kKernel && launched.kind == NodeKind::kKernel) {
      if (const auto it = pending.find(*stream.last); it != pending.end() && it->second == EdgeKind::kFull)
        it->second = EdgeKind::kProgrammatic;
      return;
    }
    report(Rule::kR7, Severity::kWarning, {*stream.last, index},
           fmt::format("'{}' is launched with programmatic serialization after '{}', a {}: its edges are full and "
                       "nothing overlaps; do that work inside a kernel",
                       launched.name, previous.name, to_string(previous.kind)));
  }

  // Only full edges join a side stream to the stream that captures.
  void check_joins() {
    const Graph& graph = out_.graph;
    std::vector<char> in_origin(graph.nodes.size(), 0);
    std::vector<char> is_joined(graph.nodes.size(), 0);
    for (const auto& [node, kind] : streams_.front().pending) {
      in_origin[node] = 1;
      if (kind == EdgeKind::kFull) is_joined[node] = 1;
    }
    for (size_t e = graph.edges.size(); e-- > 0;) {
      const Edge& edge = graph.edges[e];
      if (in_origin[edge.to] == 0) continue;
      in_origin[edge.from] = 1;
      if (edge.kind == EdgeKind::kFull) is_joined[edge.from] = 1;
    }
    for (size_t s = 1; s < streams_.size(); ++s)
      for (const auto& [node, kind] : streams_[s].pending) {
        if (kind != EdgeKind::kFull || is_joined[node] != 0) continue;
        report(
            Rule::kR8, Severity::kError, {node},
            fmt::format("stream '{}' ends with '{}', which the capturing stream '{}' never joins through a full edge; "
                        "record an ordinary event after it and wait for that before the capture ends",
                        program_.streams[s], graph.nodes[node].name, program_.streams.front()));
      }
  }

  void report(Rule rule, Severity severity, std::vector<uint32_t> nodes, std::string message) {
    Finding f;
    f.rule = rule;
    f.severity = severity;
    f.nodes = std::move(nodes);
    f.message = std::move(message);
    out_.findings.push_back(std::move(f));
  }

  const Program& program_;
  LoweredProgram out_;
  std::vector<Stream> streams_;
  std::vector<std::optional<Pending>> events_;
  std::vector<uint32_t> launches_;  // of each node in this replay
  std::vector<uint32_t> instance_;  // the last launch of each node in this replay
  uint32_t replay_ = 0;
};

}  // namespace

Result<LoweredProgram> lower_program(const Program& program) {
  if (program.streams.empty() && !program.ops.empty())
    return make_error(ErrorCode::kInvalidArgument, "a program without streams");
  return Lowering(program).run();
}

}  // namespace megartp::launch
