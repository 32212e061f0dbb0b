#include "trace/dependencies.h"

#include <algorithm>

namespace megartp::trace {

Dependencies::Dependencies(const Trace& trace)
    : trace_(trace), bindings_(trace.tasks.size()), senders_(trace.events.size()) {
  for (uint32_t e = 0; e < trace.events.size(); ++e) resolve(e);
  if (trace.kernel_edges.empty()) return;
  first_enter_ns_.assign(trace.ops.size(), trace.meta.span_ns);
  for (const TraceTask& t : trace.tasks) first_enter_ns_[t.op] = std::min(first_enter_ns_[t.op], t.visible_ns);
}

void Dependencies::resolve(uint32_t event) {
  const TraceEvent& e = trace_.events[event];
  std::vector<EventSignal> sent;
  for (const EventSignal& s : e.signals)
    if (trace_.tasks[s.task].sent) sent.push_back(s);
  std::ranges::stable_sort(sent, {}, [this](const EventSignal& s) { return trace_.tasks[s.task].done_ns; });
  std::vector<uint64_t> counts;  // after each
  uint64_t count = 0;
  for (const EventSignal& s : sent) {
    counts.push_back(count += s.increment);
    senders_[event].push_back(s.task);
  }
  for (const EventWait& w : e.waits) {
    if (w.threshold == 0) continue;
    auto at = static_cast<size_t>(std::ranges::lower_bound(counts, w.threshold) - counts.begin());
    if (at == counts.size()) {
      ++num_unresolved_;
      if (sent.empty()) continue;
      at = counts.size() - 1;  // the last that is known of
    }
    const uint64_t done = trace_.tasks[sent[at].task].done_ns;
    Binding& binding = bindings_[w.task];
    if (binding.task == kNoTraceTask || done > binding.done_ns) binding = {sent[at].task, event, done};
  }
}

bool Dependencies::waited_for_event(uint32_t task) const {
  const uint32_t before = before_on_lane(task);
  return bindings_[task].task != kNoTraceTask &&
         (before == kNoTraceTask || bindings_[task].done_ns >= trace_.tasks[before].done_ns);
}

uint64_t Dependencies::lag_ns(uint32_t task) const {
  const uint64_t ready = trace_.tasks[task].ready_ns;
  uint64_t met = 0;
  if (const uint32_t before = before_on_lane(task); before != kNoTraceTask) met = trace_.tasks[before].done_ns;
  if (bindings_[task].task != kNoTraceTask) met = std::max(met, bindings_[task].done_ns);
  return ready - std::min(ready, met);
}

}  // namespace megartp::trace
