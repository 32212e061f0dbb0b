#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "plan/packing.h"
#include "plan/schedule_time.h"

namespace megartp::plan {
namespace {

// By what the next of the ready tasks is chosen; the other one decides among equals.
enum class Rule : uint8_t { kPath, kTail };

// Tasks whose events have all fired: largest first, the lower task id among equals.
struct Ready {
  std::pair<Nanoseconds, Nanoseconds> rank;
  uint32_t task;
  bool operator<(const Ready& o) const { return rank != o.rank ? rank < o.rank : task > o.task; }
};
// Something that happens at a time, earliest first.
struct Timed {
  Nanoseconds time;
  uint32_t idx;  // task or worker
  bool operator<(const Timed& o) const { return time != o.time ? time > o.time : idx > o.idx; }
};

class ListScheduler {
 public:
  ListScheduler(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers, Rule rule)
      : graph_(graph),
        num_workers_(num_workers),
        rule_(rule),
        latency_(to_ns(target.event_latency_us)),
        cost_(costs_of(graph, target, num_workers)) {}

  Result<Schedule> run() {
    index_events();
    tail_ = tails_of(graph_, cost_, latency_);
    MEGARTP_TRY(simulate());
    return to_schedule(order_, worker_of_, num_workers_);
  }

 private:
  void index_events() {
    const size_t num_events = graph_.events.size();
    waiter_offsets_.assign(num_events + 1, 0);
    signallers_.assign(num_events, 0);
    for (const Task& task : graph_.tasks) {
      for (uint32_t i = 0; i < task.num_waits; ++i) ++waiter_offsets_[task.waits[i].event + 1];
      for (uint32_t i = 0; i < task.num_signals; ++i) ++signallers_[task.signals[i].event];
    }
    for (size_t e = 0; e < num_events; ++e) waiter_offsets_[e + 1] += waiter_offsets_[e];
    waiters_.resize(waiter_offsets_.back());
    std::vector<uint32_t> next(waiter_offsets_.begin(), waiter_offsets_.end() - 1);
    for (uint32_t t = 0; t < graph_.tasks.size(); ++t)
      for (uint32_t i = 0; i < graph_.tasks[t].num_waits; ++i) waiters_[next[graph_.tasks[t].waits[i].event]++] = t;
  }

  Status simulate() {
    const auto num_tasks = static_cast<uint32_t>(graph_.tasks.size());
    order_.reserve(num_tasks);
    worker_of_.resize(num_tasks);
    missing_.resize(num_tasks);
    event_time_.assign(graph_.events.size(), 0);
    start_.assign(num_tasks, 0);
    for (uint32_t w = 0; w < num_workers_; ++w) free_.push({0, w});
    for (uint32_t t = 0; t < num_tasks; ++t)
      if ((missing_[t] = graph_.tasks[t].num_waits) == 0) push_ready(t);
    // When the last task was taken: a worker that has been free for longer takes its next one then, not before.
    Nanoseconds now = 0;
    while (order_.size() < num_tasks) {
      Timed worker = free_.top();
      free_.pop();
      worker.time = std::max(worker.time, now);
      if (ready_.empty()) {
        if (arriving_.empty())
          return make_error(ErrorCode::kInternal,
                            fmt::format("graph '{}': {} of {} tasks wait for events that never fire", graph_.name,
                                        num_tasks - order_.size(), num_tasks));
        worker.time = std::max(worker.time, arriving_.top().time);
      }
      for (; !arriving_.empty() && arriving_.top().time <= worker.time; arriving_.pop())
        push_ready(arriving_.top().idx);
      now = worker.time;
      const uint32_t task = ready_.top().task;
      ready_.pop();
      order_.push_back(task);
      worker_of_[task] = worker.idx;
      worker.time += cost_[task];
      finish(task, worker.time);
      free_.push(worker);
    }
    return {};
  }

  void push_ready(uint32_t task) {
    const Nanoseconds path = cost_[task] + tail_[task];
    ready_.push({rule_ == Rule::kPath ? std::pair(path, tail_[task]) : std::pair(tail_[task], path), task});
  }

  void finish(uint32_t task, Nanoseconds time) {
    const Task& t = graph_.tasks[task];
    for (uint32_t i = 0; i < t.num_signals; ++i) {
      const uint32_t event = t.signals[i].event;
      event_time_[event] = std::max(event_time_[event], time + latency_);
      if (--signallers_[event] != 0) continue;
      for (uint32_t k = waiter_offsets_[event]; k < waiter_offsets_[event + 1]; ++k) {
        const uint32_t waiter = waiters_[k];
        start_[waiter] = std::max(start_[waiter], event_time_[event]);
        if (--missing_[waiter] == 0) arriving_.push({start_[waiter], waiter});
      }
    }
  }

  const TaskGraph& graph_;
  uint32_t num_workers_;
  Rule rule_;
  Nanoseconds latency_;
  std::vector<Nanoseconds> cost_, tail_;
  std::vector<Nanoseconds> start_;                  // of a task: when its last event fires
  std::vector<uint8_t> missing_;                    // events that a task still waits for
  std::vector<uint32_t> waiter_offsets_, waiters_;  // CSR event -> tasks
  std::vector<uint32_t> signallers_;                // tasks that have yet to signal an event
  std::vector<Nanoseconds> event_time_;
  std::priority_queue<Ready> ready_;
  std::priority_queue<Timed> arriving_;      // tasks that become ready later
  std::priority_queue<Timed> free_;          // workers
  std::vector<uint32_t> order_, worker_of_;  // tasks in the order in which they are taken; a worker a task
};

}  // namespace

std::vector<Nanoseconds> costs_of(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers) {
  std::vector<Nanoseconds> costs;
  costs.reserve(graph.tasks.size());
  const auto& of_ops = target.op_overhead_us;
  for (const Task& task : graph.tasks) {
    const auto at = std::ranges::find(of_ops, task.opcode, &std::pair<uint32_t, double>::first);
    const double overhead_us = at != of_ops.end() ? at->second : target.task_overhead_us;
    costs.push_back(to_ns(overhead_us + task_work_us(task, target, num_workers)));
  }
  return costs;
}

// Task ids are a topological order, so one walk backwards meets every waiter before its event's signallers.
std::vector<Nanoseconds> tails_of(const TaskGraph& graph, const std::vector<Nanoseconds>& costs, Nanoseconds latency) {
  std::vector<Nanoseconds> tails(graph.tasks.size(), 0);
  std::vector<Nanoseconds> of_event(graph.events.size(), 0);
  for (size_t t = graph.tasks.size(); t-- > 0;) {
    const Task& task = graph.tasks[t];
    for (uint32_t i = 0; i < task.num_signals; ++i) tails[t] = std::max(tails[t], of_event[task.signals[i].event]);
    for (uint32_t i = 0; i < task.num_waits; ++i) {
      Nanoseconds& longest = of_event[task.waits[i].event];
      longest = std::max(longest, latency + costs[t] + tails[t]);
    }
  }
  return tails;
}

Schedule to_schedule(const std::vector<uint32_t>& order, const std::vector<uint32_t>& worker_of, uint32_t num_workers) {
  Schedule s;
  s.offsets.assign(num_workers + 1, 0);
  for (const uint32_t w : worker_of) ++s.offsets[w + 1];
  for (uint32_t w = 0; w < num_workers; ++w) s.offsets[w + 1] += s.offsets[w];
  s.tasks.resize(order.size());
  std::vector<uint32_t> next(s.offsets.begin(), s.offsets.end() - 1);
  for (const uint32_t task : order) s.tasks[next[worker_of[task]]++] = task;
  return s;
}

double task_work_us(const Task& task, const TargetDesc& target, uint32_t num_workers) {
  // GB/s = 1e3 bytes a microsecond; GFLOP/s likewise.
  const double share = 1e3 / num_workers;
  const double memory_us =
      target.read_gb_per_s > 0 ? static_cast<double>(task.bytes) / (target.read_gb_per_s * share) : 0;
  const double arithmetic_us = target.gflops > 0 ? static_cast<double>(task.flops) / (target.gflops * share) : 0;
  return std::max(memory_us * (1 - target.hidden_loads), arithmetic_us);
}

Schedule schedule_round_robin(const TaskGraph& graph, uint32_t num_workers) {
  Schedule s;
  const auto num_tasks = static_cast<uint32_t>(graph.tasks.size());
  s.offsets.reserve(num_workers + 1);
  s.offsets.push_back(0);
  s.tasks.reserve(num_tasks);
  for (uint32_t w = 0; w < num_workers; ++w) {
    for (uint64_t t = w; t < num_tasks; t += num_workers) s.tasks.push_back(static_cast<uint32_t>(t));
    s.offsets.push_back(static_cast<uint32_t>(s.tasks.size()));
  }
  return s;
}

Result<Schedule> schedule_critical_path(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers) {
  return ListScheduler(graph, target, num_workers, Rule::kPath).run();
}

Result<Schedule> schedule_longest_tail(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers) {
  return ListScheduler(graph, target, num_workers, Rule::kTail).run();
}

Result<Schedule> make_schedule(const TaskGraph& graph, const TargetDesc& target, Packer packer, uint32_t num_workers) {
  switch (packer) {
    case Packer::kRoundRobin: break;
    case Packer::kCriticalPath: return schedule_critical_path(graph, target, num_workers);
    case Packer::kLongestTail: return schedule_longest_tail(graph, target, num_workers);
    case Packer::kInsertion: return schedule_insertion(graph, target, num_workers);
  }
  return schedule_round_robin(graph, num_workers);
}

}  // namespace megartp::plan
