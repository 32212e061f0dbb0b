// The insertion packer: tasks in the order of what remains after them, each where it can begin first, gaps included. So
// a worker waits for a short task with much behind it instead of taking up a long one that happens to be ready.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "plan/packing.h"
#include "plan/schedule_time.h"

namespace megartp::plan {
namespace {

// Idle time of a worker before its last task. Old gaps are forgotten: hardly anything fits them any more, and a search
// through all would be quadratic.
struct Gap {
  Nanoseconds begin, end;
};
constexpr size_t kMaxGaps = 16;

class Worker {
 public:
  // When a task of so long can begin, `ready` or later; where: index of a gap, or how many there are for the end.
  Nanoseconds earliest(Nanoseconds ready, Nanoseconds cost, size_t& where) const {
    for (where = 0; where < gaps_.size(); ++where) {
      const Nanoseconds begin = std::max(ready, gaps_[where].begin);
      if (begin + cost <= gaps_[where].end) return begin;
    }
    return std::max(ready, end_);
  }
  void take(Nanoseconds begin, Nanoseconds cost, size_t where) {
    Gap free{end_, begin};
    if (where == gaps_.size()) {
      end_ = begin + cost;
    } else {
      free = gaps_[where];
      gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(where));
      if (begin + cost < free.end) insert(where, {begin + cost, free.end});
    }
    if (free.begin < begin) insert(where, {free.begin, begin});
    if (gaps_.size() > kMaxGaps) gaps_.erase(gaps_.begin());
  }

 private:
  void insert(size_t where, Gap gap) { gaps_.insert(gaps_.begin() + static_cast<std::ptrdiff_t>(where), gap); }

  std::vector<Gap> gaps_;  // ascending
  Nanoseconds end_ = 0;
};

class InsertionScheduler {
 public:
  InsertionScheduler(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers)
      : graph_(graph),
        latency_(to_ns(target.event_latency_us)),
        workers_(num_workers),
        cost_(costs_of(graph, target, num_workers)) {}

  Result<Schedule> run() {
    // What every task waits for has more behind it than the task, or as much and a lower id.
    std::vector<uint32_t> order = ids();
    const std::vector<Nanoseconds> tails = tails_of(graph_, cost_, latency_);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](uint32_t t) { return tails[t]; });
    start_.resize(order.size());
    worker_of_.resize(order.size());
    count_signallers();
    for (const uint32_t task : order) MEGARTP_TRY(place(task));
    // By the time of the start: a topological order of all queues together.
    std::ranges::stable_sort(order, {}, [&](uint32_t t) { return start_[t]; });
    return to_schedule(order, worker_of_, static_cast<uint32_t>(workers_.size()));
  }

 private:
  std::vector<uint32_t> ids() const {
    std::vector<uint32_t> v(graph_.tasks.size());
    std::iota(v.begin(), v.end(), 0U);
    return v;
  }

  void count_signallers() {
    event_time_.assign(graph_.events.size(), 0);
    missing_.assign(graph_.events.size(), 0);
    for (const Task& task : graph_.tasks)
      for (uint32_t i = 0; i < task.num_signals; ++i) ++missing_[task.signals[i].event];
    // Nobody ever sends what an event without signallers lacks.
    for (uint32_t& missing : missing_) missing = std::max(missing, 1U);
  }

  Status place(uint32_t id) {
    const Task& task = graph_.tasks[id];
    Nanoseconds ready = 0;
    for (uint32_t i = 0; i < task.num_waits; ++i) {
      const uint32_t event = task.waits[i].event;
      if (missing_[event] != 0)
        return make_error(ErrorCode::kInternal,
                          fmt::format("graph '{}': task {} waits for an event that never fires", graph_.name, id));
      ready = std::max(ready, event_time_[event]);
    }
    Nanoseconds best = std::numeric_limits<Nanoseconds>::max();
    size_t best_place = 0;
    for (uint32_t w = 0; w < workers_.size() && best > ready; ++w) {
      size_t where = 0;
      const Nanoseconds begin = workers_[w].earliest(ready, cost_[id], where);
      if (begin >= best) continue;
      best = begin, best_place = where, worker_of_[id] = w;
    }
    workers_[worker_of_[id]].take(best, cost_[id], best_place);
    start_[id] = best;
    for (uint32_t i = 0; i < task.num_signals; ++i) {
      const uint32_t event = task.signals[i].event;
      event_time_[event] = std::max(event_time_[event], best + cost_[id] + latency_);
      --missing_[event];
    }
    return {};
  }

  const TaskGraph& graph_;
  Nanoseconds latency_;
  std::vector<Worker> workers_;
  std::vector<Nanoseconds> cost_, start_;
  std::vector<uint32_t> worker_of_;
  std::vector<Nanoseconds> event_time_;
  std::vector<uint32_t> missing_;  // signals that an event still lacks
};

}  // namespace

Result<Schedule> schedule_insertion(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers) {
  return InsertionScheduler(graph, target, num_workers).run();
}

}  // namespace megartp::plan
