#include "trace/analysis.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "trace/dependencies.h"

namespace megartp::trace {
namespace {

// Time of [begin, end) in which some interval of the sorted list lies.
uint64_t covered_ns(const std::vector<std::pair<uint64_t, uint64_t>>& intervals, uint64_t begin, uint64_t end) {
  uint64_t sum = 0;
  for (const auto& [from, to] : intervals) {
    if (from >= end) break;
    if (to <= begin) continue;
    sum += std::min(to, end) - std::max(from, begin);
    begin = std::min(to, end);
  }
  return sum;
}

// Idle time of one unit (a worker, an SM): its tasks in the order of ready, gaps between what is covered.
class UnitIdle {
 public:
  UnitIdle(const Trace& trace, const Dependencies& deps, Analysis& out) : trace_(trace), deps_(deps), out_(out) {}

  void add(std::vector<uint32_t> tasks) {
    std::ranges::stable_sort(tasks, {}, [this](uint32_t t) { return trace_.tasks[t].ready_ns; });
    cursor_ = 0;
    has_started_ = false;
    for (const uint32_t t : tasks) {
      const TraceTask& task = trace_.tasks[t];
      if (task.ready_ns > cursor_) explain_gap(t);
      if (task.done_ns > cursor_) {
        out_.busy_ns += task.done_ns - std::max(cursor_, task.ready_ns);
        cursor_ = task.done_ns;
      }
    }
    count(IdleReason::kEnd, trace_.meta.span_ns);
  }

 private:
  void count(IdleReason reason, uint64_t until) {
    if (until <= cursor_) return;
    out_.idle_ns[static_cast<size_t>(reason)] += until - cursor_;
    cursor_ = until;
  }

  // From cursor_ to the task's ready.
  void explain_gap(uint32_t t) {
    const TraceTask& task = trace_.tasks[t];
    const IdleReason no_wait = has_started_ ? IdleReason::kQueue : IdleReason::kStart;
    has_started_ = true;
    const Binding& binding = deps_.binding(t);
    // A CTA that is not there yet waits as well: there or not, its kernel cannot go on before its producers are done.
    const bool is_kernel = !trace_.kernel_edges.empty() && binding.task != kNoTraceTask;
    if (!is_kernel) count(no_wait, task.visible_ns);
    if (binding.task == kNoTraceTask) {
      count(no_wait, task.ready_ns);
      return;
    }
    const uint64_t met = std::min(binding.done_ns, task.ready_ns);
    if (met > cursor_) {
      std::vector<std::pair<uint64_t, uint64_t>> weights;
      const auto [first, last] = std::ranges::equal_range(trace_.roles, t, {}, &RoleInterval::task);
      for (auto r = first; r != last; ++r)
        if (r->role == abi::kTraceRoleWeights) weights.emplace_back(r->begin_ns, r->end_ns);
      const uint64_t useful = covered_ns(weights, cursor_, met);
      out_.idle_ns[static_cast<size_t>(IdleReason::kPrefetch)] += useful;
      out_.idle_ns[static_cast<size_t>(IdleReason::kProducer)] += met - cursor_ - useful;
      cursor_ = met;
    }
    count(!is_kernel                   ? IdleReason::kLatency
          : !deps_.waited_for_event(t) ? IdleReason::kQueue
          : task.visible_ns >= met     ? IdleReason::kLaunch
                                       : IdleReason::kLatency,
          task.ready_ns);
  }

  const Trace& trace_;
  const Dependencies& deps_;
  Analysis& out_;
  uint64_t cursor_ = 0;
  bool has_started_ = false;
};

}  // namespace

std::string_view to_string(IdleReason reason) {
  switch (reason) {
    case IdleReason::kStart: return "start of the run";
    case IdleReason::kQueue: return "between tasks";
    case IdleReason::kProducer: return "wait for producers";
    case IdleReason::kLatency: return "event latency";
    case IdleReason::kLaunch: return "launch of a kernel";
    case IdleReason::kPrefetch: return "wait while weights come";
    case IdleReason::kEnd: return "no work left";
  }
  return "?";
}

void add_idle_times(const Trace& trace, const Dependencies& deps, Analysis& out) {
  std::map<uint32_t, std::vector<uint32_t>> units;
  for (const Lane& lane : trace.lanes) units[lane.unit];
  for (uint32_t t = 0; t < trace.tasks.size(); ++t) units[trace.lanes[trace.tasks[t].lane].unit].push_back(t);
  out.num_units = static_cast<uint32_t>(units.size());
  UnitIdle idle(trace, deps, out);
  for (auto& [unit, tasks] : units) idle.add(std::move(tasks));
}

void add_op_times(const Trace& trace, Analysis& out) {
  struct Step {
    uint64_t time;
    bool begins;
    uint32_t op;
  };
  out.ops.resize(trace.ops.size());
  std::vector<Step> steps;
  for (const TraceTask& task : trace.tasks) {
    OpTime& op = out.ops[task.op];
    op.first_ns = op.num_tasks == 0 ? task.ready_ns : std::min(op.first_ns, task.ready_ns);
    op.last_ns = std::max(op.last_ns, task.done_ns);
    op.busy_ns += task.done_ns - task.ready_ns;
    ++op.num_tasks;
    steps.push_back({task.ready_ns, true, task.op});
    steps.push_back({task.done_ns, false, task.op});
  }
  std::ranges::stable_sort(steps, {}, &Step::time);
  std::map<uint32_t, uint32_t> running;  // op -> tasks
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> pairs;
  uint64_t before = 0;
  for (const Step& step : steps) {
    if (const uint64_t ns = step.time - before; ns > 0) {
      for (auto a = running.begin(); a != running.end(); ++a) {
        out.ops[a->first].running_ns += ns;
        if (running.size() == 1) out.ops[a->first].alone_ns += ns;
        for (auto b = std::next(a); b != running.end(); ++b) pairs[{a->first, b->first}] += ns;
      }
    }
    before = step.time;
    if (step.begins)
      ++running[step.op];
    else if (const auto at = running.find(step.op); at != running.end() && --at->second == 0)
      running.erase(at);
  }
  for (const auto& [pair, ns] : pairs) out.overlaps.push_back({pair.first, pair.second, ns});
  std::ranges::stable_sort(out.overlaps, std::greater<>(), &OpOverlap::ns);
}

uint64_t Analysis::critical_ns() const {
  uint64_t sum = 0;
  for (const CriticalLink& link : critical) sum += link.end_ns - link.begin_ns;
  return sum;
}

Analysis analyse(const Trace& trace) {
  const Dependencies deps(trace);
  Analysis out;
  out.num_unresolved = deps.num_unresolved();
  out.critical = critical_path(trace, deps);
  out.slack_ns = slacks(trace, deps);
  add_idle_times(trace, deps, out);
  add_op_times(trace, out);
  for (const CriticalLink& link : out.critical) {
    const uint64_t ns = link.end_ns - link.begin_ns;
    out.link_ns[static_cast<size_t>(link.kind)] += ns;
    if (link.kind == LinkKind::kCompute || link.kind == LinkKind::kWeights)
      out.ops[trace.tasks[link.task].op].critical_ns += ns;
  }
  return out;
}

}  // namespace megartp::trace
