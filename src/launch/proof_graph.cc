// A launch plan in the words of the launch prover.
#include <map>

#include <fmt/format.h>

#include "launch/launch_passes.h"

namespace megartp::launching {
namespace {

using launch::Phase;

launch::Means means_of(DeviceAccess::Means means) {
  switch (means) {
    case DeviceAccess::Means::kGeneric: return launch::Means::kGeneric;
    case DeviceAccess::Means::kReadOnly: return launch::Means::kReadOnly;
    case DeviceAccess::Means::kTma: return launch::Means::kTma;
  }
  return launch::Means::kGeneric;
}

DeviceWait wait_of(EdgeLevel level) {
  switch (level) {
    case EdgeLevel::kEnterOnly: return DeviceWait::kEntry;
    case EdgeLevel::kPrologue: return DeviceWait::kPrologue;
    case EdgeLevel::kFull:
    case EdgeLevel::kPrefetch: break;
  }
  return DeviceWait::kPrefetch;
}

uint64_t bytes_of(const ConcreteTensor& t) {
  uint64_t bytes = size_in_bytes(t.dtype);
  for (const int64_t d : t.dims) bytes *= static_cast<uint64_t>(d);
  return bytes;
}

class Converter {
 public:
  Converter(const LaunchPlan& plan, uint32_t replay_streams) : plan_(plan) {
    graph_.device.num_sms = plan.target.num_sms;
    graph_.replay_streams = replay_streams;
    for (const LaunchWorkspace& w : plan.workspaces)
      if (w.words.empty()) workspaces_[w.tensor] = w.zeroed;
  }

  launch::Graph run() {
    for (const LaunchKernel& k : plan_.kernels) add_node(k);
    for (const LaunchEdge& e : plan_.edges) graph_.edges.push_back({e.from, e.to, e.kind});
    return std::move(graph_);
  }

 private:
  uint32_t buffer_of(TensorId id) {
    const auto [it, is_new] = buffers_.try_emplace(id, static_cast<uint32_t>(graph_.buffers.size()));
    if (!is_new) return it->second;
    const ConcreteTensor& t = plan_.tensors[id];
    launch::Buffer b;
    b.name = launch::is_plain_name(t.name) ? t.name : fmt::format("t{}", id);
    if (!names_.try_emplace(b.name, id).second) b.name = fmt::format("t{}", id);
    b.num_bytes = bytes_of(t);
    if (const auto w = workspaces_.find(id); w != workspaces_.end()) {
      // A zeroed workspace counts on from replay to replay.
      b.kind = w->second ? launch::BufferKind::kCounter : launch::BufferKind::kWorkspace;
      b.advances = w->second;
    }
    graph_.buffers.push_back(std::move(b));
    return it->second;
  }

  void add_node(const LaunchKernel& k) {
    launch::Node n;
    n.name = launch::is_plain_name(k.name) ? k.name : fmt::format("k{}", graph_.nodes.size());
    n.waits = k.kernel.waits ? launch::Waits::kAll : launch::Waits::kNone;
    n.trigger = k.kernel.triggers_at_start ? launch::Trigger::kBeforeWait : launch::Trigger::kNone;
    n.grid = k.kernel.grid[0] * k.kernel.grid[1] * k.kernel.grid[2];
    n.threads = k.kernel.block;
    n.smem_bytes = k.kernel.smem_bytes;
    n.priority = k.priority;
    n.prologue =
        k.wait == DeviceWait::kEntry || !k.kernel.has_prologue ? launch::Prologue::kTrivial : launch::Prologue::kUseful;
    for (const DeviceAccess& a : k.kernel.accesses) {
      launch::Access access;
      access.buffer = buffer_of(k.kernel.params[a.param].tensor);
      access.end = graph_.buffers[access.buffer].num_bytes;
      access.is_write = a.is_write;
      const bool is_early = !k.kernel.waits || (a.before_wait && k.wait == DeviceWait::kPrefetch);
      access.phase = is_early ? Phase::kPre : Phase::kPost;
      access.means = means_of(a.means);
      n.accesses.push_back(access);
    }
    graph_.nodes.push_back(std::move(n));
  }

  const LaunchPlan& plan_;
  launch::Graph graph_;
  std::map<TensorId, bool> workspaces_;
  std::map<TensorId, uint32_t> buffers_;
  std::map<std::string, TensorId> names_;
};

}  // namespace

void set_waits(LaunchPlan& plan) {
  for (LaunchKernel& k : plan.kernels) {
    k.wait = DeviceWait::kPrefetch;
    k.has_programmatic_in = false;
  }
  for (const LaunchEdge& e : plan.edges) {
    if (e.kind == launch::EdgeKind::kFull) continue;
    LaunchKernel& k = plan.kernels[e.to];
    k.wait = k.has_programmatic_in ? std::max(k.wait, wait_of(e.level)) : wait_of(e.level);
    k.has_programmatic_in = true;
  }
}

launch::Graph proof_graph(const LaunchPlan& plan, uint32_t replay_streams) {
  return Converter(plan, replay_streams).run();
}

}  // namespace megartp::launching
