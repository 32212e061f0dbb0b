// Slack: how much later a task could have been done, all tiles and lags as they were, without a later end of the run.
#include <algorithm>
#include <ranges>

#include "trace/analysis.h"
#include "trace/dependencies.h"

namespace megartp::trace {
namespace {

// Nodes: tasks, then events. Successors of a task: the next on its lane and the events that it signals; of an event:
// its waiters.
class SlackSolver {
 public:
  SlackSolver(const Trace& trace, const Dependencies& deps)
      : trace_(trace), deps_(deps), num_tasks_(static_cast<uint32_t>(trace.tasks.size())) {}

  std::vector<uint64_t> solve() {
    index_signals();
    uint64_t end = 0;
    for (const TraceTask& t : trace_.tasks) end = std::max(end, t.done_ns);
    late_.assign(num_tasks_ + trace_.events.size(), end);
    const std::vector<uint32_t> order = topological_order();
    for (const uint32_t node : std::views::reverse(order)) {
      if (node >= num_tasks_)
        relax_event(node - num_tasks_);
      else
        relax_task(node);
    }
    std::vector<uint64_t> slack(num_tasks_);
    for (uint32_t t = 0; t < num_tasks_; ++t) slack[t] = late_[t] - std::min(late_[t], trace_.tasks[t].done_ns);
    return slack;
  }

 private:
  void index_signals() {
    events_of_.resize(num_tasks_);
    for (uint32_t e = 0; e < trace_.events.size(); ++e)
      for (const uint32_t t : deps_.senders(e)) events_of_[t].push_back(e);
  }
  uint32_t next_on_lane(uint32_t t) const {
    return t + 1 < num_tasks_ && deps_.before_on_lane(t + 1) == t ? t + 1 : kNoTraceTask;
  }

  // Nodes on a circle, which no sound trace has, are left out and keep the end of the run.
  std::vector<uint32_t> topological_order() const {
    std::vector<uint32_t> missing(late_.size());
    for (uint32_t t = 0; t < num_tasks_; ++t) {
      if (next_on_lane(t) != kNoTraceTask) ++missing[t + 1];
      for (const uint32_t e : events_of_[t]) ++missing[num_tasks_ + e];
    }
    for (const TraceEvent& e : trace_.events)
      for (const EventWait& w : e.waits) ++missing[w.task];
    std::vector<uint32_t> order;
    for (uint32_t n = 0; n < missing.size(); ++n)
      if (missing[n] == 0) order.push_back(n);
    const auto let_go = [&](uint32_t node) {
      if (--missing[node] == 0) order.push_back(node);
    };
    for (size_t i = 0; i < order.size(); ++i) {  // NOLINT(modernize-loop-convert): the list grows
      const uint32_t node = order[i];
      if (node >= num_tasks_) {
        for (const EventWait& w : trace_.events[node - num_tasks_].waits) let_go(w.task);
        continue;
      }
      if (const uint32_t next = next_on_lane(node); next != kNoTraceTask) let_go(next);
      for (const uint32_t e : events_of_[node]) let_go(num_tasks_ + e);
    }
    return order;
  }

  // When the needs of a task must be met at the latest.
  uint64_t latest_need(uint32_t t) const {
    const TraceTask& task = trace_.tasks[t];
    const uint64_t before_done = task.done_ns - task.ready_ns + deps_.lag_ns(t);
    return late_[t] - std::min(late_[t], before_done);
  }
  void relax_event(uint32_t e) {
    for (const EventWait& w : trace_.events[e].waits)
      late_[num_tasks_ + e] = std::min(late_[num_tasks_ + e], latest_need(w.task));
  }
  void relax_task(uint32_t t) {
    if (const uint32_t next = next_on_lane(t); next != kNoTraceTask) late_[t] = std::min(late_[t], latest_need(next));
    for (const uint32_t e : events_of_[t]) late_[t] = std::min(late_[t], late_[num_tasks_ + e]);
  }

  const Trace& trace_;
  const Dependencies& deps_;
  uint32_t num_tasks_;
  std::vector<std::vector<uint32_t>> events_of_;
  std::vector<uint64_t> late_;  // of tasks: latest done; of events: latest completion
};

}  // namespace

std::vector<uint64_t> slacks(const Trace& trace, const Dependencies& deps) { return SlackSolver(trace, deps).solve(); }

}  // namespace megartp::trace
