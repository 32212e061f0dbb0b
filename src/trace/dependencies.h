// What each task of a trace in fact waited for: told from the events, the recorded times and the order of the lanes.
// Shared by the critical path, slack, idle reasons and the what-if replay.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace megartp::trace {

inline constexpr uint32_t kNoTraceTask = ~uint32_t{0};
inline constexpr uint32_t kNoTraceEvent = ~uint32_t{0};

// The last of a task's events to be reached, and the signal that reached it.
struct Binding {
  uint32_t task = kNoTraceTask;
  uint32_t event = kNoTraceEvent;
  uint64_t done_ns = 0;  // of that task
};

class Dependencies {
 public:
  explicit Dependencies(const Trace& trace);

  const Binding& binding(uint32_t task) const { return bindings_[task]; }
  // The task before it on its lane, which it had to wait for. A CTA did not wait for one that had left before its
  // kernel's first CTA entered anywhere.
  uint32_t before_on_lane(uint32_t task) const {
    if (task == 0 || trace_.tasks[task - 1].lane != trace_.tasks[task].lane) return kNoTraceTask;
    const bool waited =
        first_enter_ns_.empty() || trace_.tasks[task - 1].done_ns > first_enter_ns_[trace_.tasks[task].op];
    return waited ? task - 1 : kNoTraceTask;
  }
  // Whether the task was let go by its events (true), or by its lane's being free.
  bool waited_for_event(uint32_t task) const;
  // From when its last need was met until it was ready: the signal's way, and noticing it.
  uint64_t lag_ns(uint32_t task) const;
  // Waits whose signals are not all recorded.
  uint64_t num_unresolved() const { return num_unresolved_; }
  // Signallers of an event in the order of their done; only those that sent.
  const std::vector<uint32_t>& senders(uint32_t event) const { return senders_[event]; }

 private:
  void resolve(uint32_t event);

  const Trace& trace_;
  std::vector<Binding> bindings_;
  std::vector<std::vector<uint32_t>> senders_;
  std::vector<uint64_t> first_enter_ns_;  // of kernels; empty: the run of a plan
  uint64_t num_unresolved_ = 0;
};

}  // namespace megartp::trace
