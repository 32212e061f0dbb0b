// linearize: first a breadth-first order, which tells when each event completes; then blocks of tasks whose last event
// is the same one, placed depth first from program order.
//
// Why blocks never depend on each other in a circle: a member of the block of event E waits for events that complete no
// later than E in the breadth-first order. Their signallers stand before that point, so they belong to blocks of events
// that completed strictly earlier.
#include "lowering/linearize.h"

#include <algorithm>
#include <span>
#include <string>

#include <fmt/format.h>

namespace megartp::lowering {
namespace {

constexpr uint32_t kNone = 0xffffffffU;

// CSR lists of tasks by event.
struct TaskLists {
  std::vector<uint32_t> offsets;
  std::vector<uint32_t> tasks;
  std::span<const uint32_t> operator[](uint32_t event) const {
    return std::span(tasks).subspan(offsets[event], offsets[event + 1] - offsets[event]);
  }
};

// for_each_event(task, visit) calls visit(event).
template <class ForEachEvent>
TaskLists make_lists(const TaskGraph& graph, const ForEachEvent& for_each_event) {
  TaskLists lists;
  lists.offsets.assign(graph.events.size() + 1, 0);
  for (const Task& task : graph.tasks) for_each_event(task, [&](uint32_t e) { ++lists.offsets[e + 1]; });
  for (size_t e = 0; e < graph.events.size(); ++e) lists.offsets[e + 1] += lists.offsets[e];
  lists.tasks.resize(lists.offsets.back());
  std::vector<uint32_t> next(lists.offsets.begin(), lists.offsets.end() - 1);
  for (uint32_t t = 0; t < graph.tasks.size(); ++t)
    for_each_event(graph.tasks[t], [&](uint32_t e) { lists.tasks[next[e]++] = t; });
  return lists;
}

class Linearizer {
 public:
  Linearizer(const TaskGraph& graph, const LinearizeOptions& options)
      : graph_(graph),
        options_(options),
        num_tasks_(static_cast<uint32_t>(graph.tasks.size())),
        num_events_(static_cast<uint32_t>(graph.events.size())) {}

  Result<LinearOrder> run() {
    signallers_ = make_lists(graph_, [](const Task& task, const auto& visit) {
      for (uint32_t i = 0; i < task.num_signals; ++i) visit(task.signals[i].event);
    });
    MEGARTP_TRY(complete_events());
    make_blocks();
    out_.order.reserve(num_tasks_);
    out_.positions.assign(num_tasks_, kNone);
    satisfied_.assign(num_events_, false);
    opened_.assign(num_events_, false);
    if (options_.roots_first)
      for (uint32_t t = 0; t < num_tasks_; ++t)
        if (home_[t] == kNone) append(t);
    for (uint32_t t = 0; t < num_tasks_; ++t) place(t);
    measure_spans();
    return std::move(out_);
  }

 private:
  // --- breadth first: completed_at_[event]
  // -----------------------------------------------------------------------------
  Status complete_events() {
    const TaskLists waiters = make_lists(graph_, [](const Task& task, const auto& visit) {
      for (uint32_t i = 0; i < task.num_waits; ++i) visit(task.waits[i].event);
    });
    std::vector<uint32_t> missing_signals(num_events_);
    for (uint32_t e = 0; e < num_events_; ++e) {
      missing_signals[e] = static_cast<uint32_t>(signallers_[e].size());
      if (missing_signals[e] == 0 && !waiters[e].empty())
        return make_error(ErrorCode::kInternal, fmt::format("graph '{}': {} waits for event {}, which no task signals",
                                                            graph_.name, name_of(waiters[e].front()), e));
    }
    completed_at_.assign(num_events_, kNone);
    std::vector<uint32_t> missing_events(num_tasks_);
    std::vector<uint32_t> queue;
    queue.reserve(num_tasks_);
    for (uint32_t t = 0; t < num_tasks_; ++t)
      if ((missing_events[t] = graph_.tasks[t].num_waits) == 0) queue.push_back(t);
    for (uint32_t at = 0; at < queue.size(); ++at) {
      const Task& task = graph_.tasks[queue[at]];
      for (uint32_t i = 0; i < task.num_signals; ++i) {
        const uint32_t event = task.signals[i].event;
        if (--missing_signals[event] != 0) continue;
        completed_at_[event] = at;
        for (const uint32_t waiter : waiters[event])
          if (--missing_events[waiter] == 0) queue.push_back(waiter);
      }
    }
    return queue.size() == num_tasks_ ? Status{} : cycle_error(queue);
  }

  std::string name_of(uint32_t task) const {
    const Task& t = graph_.tasks[task];
    return fmt::format("task {} ('{}' tile {})", task, graph_.stages[t.stage].stage->name, t.tile);
  }

  // Walks from a task that was not reached back over unfinished events until a task comes twice.
  Status cycle_error(const std::vector<uint32_t>& reached) const {
    std::vector<bool> is_reached(num_tasks_, false);
    for (const uint32_t t : reached) is_reached[t] = true;
    const auto first_left = [&](std::span<const uint32_t> tasks) {
      return *std::ranges::find_if(tasks, [&](uint32_t t) { return !is_reached[t]; });
    };
    std::vector<uint32_t> step_of(num_tasks_, kNone);
    std::vector<uint32_t> path;  // each task waits for an event that the next one has yet to signal
    std::vector<uint32_t> events;
    for (auto t = static_cast<uint32_t>(std::ranges::find(is_reached, false) - is_reached.begin());;) {
      if (step_of[t] != kNone) {
        path.erase(path.begin(), path.begin() + step_of[t]);
        events.erase(events.begin(), events.begin() + step_of[t]);
        break;
      }
      step_of[t] = static_cast<uint32_t>(path.size());
      path.push_back(t);
      const Task& task = graph_.tasks[t];
      uint32_t i = 0;
      while (completed_at_[task.waits[i].event] != kNone) ++i;
      events.push_back(task.waits[i].event);
      t = first_left(signallers_[events.back()]);
    }
    std::string text = name_of(path.front());
    constexpr size_t kMaxNamed = 8;
    for (size_t i = 0; i < path.size() && i < kMaxNamed; ++i)
      text += fmt::format("{} waits for event {} of {}", i == 0 ? "" : ", which", events[i],
                          name_of(path[(i + 1) % path.size()]));
    if (path.size() > kMaxNamed) text += fmt::format(" ... ({} tasks)", path.size());
    return make_error(ErrorCode::kInternal,
                      fmt::format("graph '{}': tasks wait for each other in a circle: {}", graph_.name, text));
  }

  // --- blocks
  // ------------------------------------------------------------------------------------------------------------
  void make_blocks() {
    home_.assign(num_tasks_, kNone);
    for (uint32_t t = 0; t < num_tasks_; ++t) {
      const Task& task = graph_.tasks[t];
      for (uint32_t i = 0; i < task.num_waits; ++i) {
        const uint32_t event = task.waits[i].event;
        const uint32_t best = home_[t];
        // Of events that complete together, the one with fewer signallers is the finer; then the lower id.
        if (best == kNone || completed_at_[event] > completed_at_[best] ||
            (completed_at_[event] == completed_at_[best] && is_finer(event, best)))
          home_[t] = event;
      }
    }
    blocks_.offsets.assign(num_events_ + 1, 0);
    for (const uint32_t event : home_)
      if (event != kNone) ++blocks_.offsets[event + 1];
    for (uint32_t e = 0; e < num_events_; ++e) blocks_.offsets[e + 1] += blocks_.offsets[e];
    blocks_.tasks.resize(blocks_.offsets.back());
    std::vector<uint32_t> next(blocks_.offsets.begin(), blocks_.offsets.end() - 1);
    for (uint32_t t = 0; t < num_tasks_; ++t)
      if (home_[t] != kNone) blocks_.tasks[next[home_[t]]++] = t;
  }
  bool is_finer(uint32_t a, uint32_t b) const {
    const size_t size_a = signallers_[a].size();
    const size_t size_b = signallers_[b].size();
    return size_a != size_b ? size_a < size_b : a < b;
  }

  // --- placing
  // ------------------------------------------------------------------------------------------------------------- Work
  // of a depth-first walk: an event to satisfy (place what signals it), or the block of an event to place. `next`
  // counts the signallers, or the members, that are done with.
  struct Frame {
    uint32_t event = 0;
    bool is_block = false;
    uint32_t next = 0;
    uint32_t next_wait = 0;  // of the member at `next`
  };

  void append(uint32_t task) {
    out_.positions[task] = static_cast<uint32_t>(out_.order.size());
    out_.order.push_back(task);
  }

  // Places the task with its block, after everything that the block waits for.
  void place(uint32_t task) {
    enter(task);
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      const bool is_done = frame.is_block ? advance_block(frame) : advance_event(frame);
      if (is_done) stack_.pop_back();
    }
  }
  void enter(uint32_t task) {
    if (out_.positions[task] != kNone) return;
    const uint32_t event = home_[task];
    if (event == kNone) {
      append(task);
    } else if (!opened_[event]) {
      opened_[event] = true;
      stack_.push_back({event, true});
    }
  }
  // Both return true when the frame is finished; false after pushing other work (which invalidates the reference).
  bool advance_event(Frame& frame) {
    const auto tasks = signallers_[frame.event];
    while (frame.next < tasks.size()) {
      const uint32_t task = tasks[frame.next++];
      const size_t depth = stack_.size();
      enter(task);
      if (stack_.size() != depth) return false;
    }
    return true;
  }
  bool advance_block(Frame& frame) {
    const auto members = blocks_[frame.event];
    for (; frame.next < members.size(); ++frame.next, frame.next_wait = 0) {
      const Task& task = graph_.tasks[members[frame.next]];
      while (frame.next_wait < task.num_waits) {
        const uint32_t event = task.waits[frame.next_wait++].event;
        if (satisfied_[event]) continue;
        satisfied_[event] = true;
        stack_.push_back({event, false});
        return false;
      }
    }
    for (const uint32_t task : members) append(task);
    return true;
  }

  void measure_spans() {
    out_.spans.assign(num_events_, {});
    for (uint32_t at = 0; at < num_tasks_; ++at) {
      const Task& task = graph_.tasks[out_.order[at]];
      for (uint32_t i = 0; i < task.num_waits; ++i) {
        EventSpan& span = out_.spans[task.waits[i].event];
        if (span.num_ranges == 0) span.first = at;
        if (span.num_ranges == 0 || span.end < at) ++span.num_ranges;
        span.end = at + 1;
      }
    }
    out_.num_contiguous =
        static_cast<uint32_t>(std::ranges::count_if(out_.spans, [](const EventSpan& s) { return s.is_contiguous(); }));
  }

  const TaskGraph& graph_;
  LinearizeOptions options_;
  uint32_t num_tasks_;
  uint32_t num_events_;
  TaskLists signallers_;
  std::vector<uint32_t> completed_at_;  // breadth-first position of the event's last signaller
  std::vector<uint32_t> home_;          // task -> the event whose block it stands in
  TaskLists blocks_;
  std::vector<bool> satisfied_, opened_;  // by event: its signallers, its block, are placed or on the stack
  std::vector<Frame> stack_;
  LinearOrder out_;
};

}  // namespace

Result<LinearOrder> linearize(const TaskGraph& graph, const LinearizeOptions& options) {
  return Linearizer(graph, options).run();
}

}  // namespace megartp::lowering
