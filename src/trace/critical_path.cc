#include <algorithm>

#include "trace/analysis.h"
#include "trace/dependencies.h"

namespace megartp::trace {
namespace {

// Whether the tile's time goes into weights, by the rates of the target.
bool is_weight_bound(const TraceMeta& meta, const TraceTask& task) {
  if (meta.read_gb_per_s <= 0 || task.weight_bytes < task.other_bytes || task.weight_bytes == 0) return false;
  const double read = static_cast<double>(task.weight_bytes + task.other_bytes) / meta.read_gb_per_s;
  return meta.gflops <= 0 || read >= static_cast<double>(task.flops) / meta.gflops;
}

// Walks from the end of the run to its begin and keeps `cursor_`, the begin of the last link, from ever going up: with
// clocks that disagree by a step, links get shorter, but no gap and no overlap appears.
class PathWalker {
 public:
  PathWalker(const Trace& trace, const Dependencies& deps) : trace_(trace), deps_(deps), cursor_(trace.meta.span_ns) {}

  std::vector<CriticalLink> walk() {
    uint32_t task = last_task();
    if (task == kNoTraceTask) return {};
    link(task, LinkKind::kLaunch, trace_.tasks[task].done_ns);
    std::vector<bool> seen(trace_.tasks.size());
    while (task != kNoTraceTask && !seen[task]) {
      seen[task] = true;
      add_tile(task);
      task = add_cause(task);
    }
    // Only what no sound trace has, a circle of waits, leaves something here.
    if (cursor_ > 0) link(links_.back().task, LinkKind::kLaunch, 0);
    std::ranges::reverse(links_);
    return std::move(links_);
  }

 private:
  uint32_t last_task() const {
    uint32_t last = kNoTraceTask;
    for (uint32_t t = 0; t < trace_.tasks.size(); ++t)
      if (last == kNoTraceTask || trace_.tasks[t].done_ns > trace_.tasks[last].done_ns) last = t;
    return last;
  }

  void link(uint32_t task, LinkKind kind, uint64_t begin, uint32_t event = kNoTraceEvent) {
    begin = std::min(begin, cursor_);
    if (begin == cursor_) return;
    links_.push_back({task, kind, begin, cursor_, event});
    cursor_ = begin;
  }

  void add_tile(uint32_t t) {
    const TraceTask& task = trace_.tasks[t];
    // By its role records where it has some: what is weights, and not computing at the same time.
    const auto [first, last] = std::ranges::equal_range(trace_.roles, t, {}, &RoleInterval::task);
    const bool has_weights =
        std::any_of(first, last, [](const RoleInterval& r) { return r.role == abi::kTraceRoleWeights; });
    if (!has_weights) {
      const bool computes =
          std::any_of(first, last, [](const RoleInterval& r) { return r.role == abi::kTraceRoleCompute; });
      const bool weights = !computes && is_weight_bound(trace_.meta, task);
      link(t, weights ? LinkKind::kWeights : LinkKind::kCompute, task.ready_ns);
      return;
    }
    std::vector<uint64_t> steps{task.ready_ns};
    for (auto r = first; r != last; ++r)
      for (const uint64_t time : {r->begin_ns, r->end_ns})
        if (time > task.ready_ns && time < cursor_) steps.push_back(time);
    std::ranges::sort(steps, std::greater<>());
    for (const uint64_t begin : steps) {
      bool weights = false, computes = false;
      for (auto r = first; r != last; ++r) {
        if (r->begin_ns > begin || r->end_ns < cursor_) continue;
        weights = weights || r->role == abi::kTraceRoleWeights;
        computes = computes || r->role == abi::kTraceRoleCompute;
      }
      extend(t, weights && !computes ? LinkKind::kWeights : LinkKind::kCompute, begin);
    }
  }

  // As link(), but one link of neighbours of one kind.
  void extend(uint32_t t, LinkKind kind, uint64_t begin) {
    if (!links_.empty() && links_.back().task == t && links_.back().kind == kind && begin < cursor_) {
      links_.back().begin_ns = cursor_ = begin;
      return;
    }
    link(t, kind, begin);
  }

  // The link before the tile, and the task at whose end it begins.
  uint32_t add_cause(uint32_t t) {
    const TraceTask& task = trace_.tasks[t];
    const Binding& binding = deps_.binding(t);
    if (deps_.waited_for_event(t)) {
      // A kernel that was not there before its producer ended was launched after it.
      const bool launched = !trace_.kernel_edges.empty() && task.visible_ns >= binding.done_ns;
      link(t, launched ? LinkKind::kLaunch : LinkKind::kWait, binding.done_ns,
           launched ? kNoTraceEvent : binding.event);
      return binding.task;
    }
    const uint32_t before = deps_.before_on_lane(t);
    if (before == kNoTraceTask)
      link(t, LinkKind::kLaunch, 0);
    else
      link(t, LinkKind::kQueue, trace_.tasks[before].done_ns);
    return before;
  }

  const Trace& trace_;
  const Dependencies& deps_;
  std::vector<CriticalLink> links_;  // last first
  uint64_t cursor_;
};

}  // namespace

std::string_view to_string(LinkKind kind) {
  switch (kind) {
    case LinkKind::kCompute: return "compute";
    case LinkKind::kWeights: return "weights";
    case LinkKind::kWait: return "wait";
    case LinkKind::kQueue: return "queue";
    case LinkKind::kLaunch: return "launch";
  }
  return "?";
}

std::vector<CriticalLink> critical_path(const Trace& trace, const Dependencies& deps) {
  return PathWalker(trace, deps).walk();
}

}  // namespace megartp::trace
