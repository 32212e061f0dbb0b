// Chrome's trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <iterator>

#include <fmt/format.h>

#include "trace/dependencies.h"
#include "trace/export.h"

namespace megartp::trace {
namespace {

class ChromeWriter {
 public:
  std::string write(std::span<const AnalysedTrace> traces) {
    out_ = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
    for (uint32_t i = 0; i < traces.size(); ++i) add_trace(traces[i], i + 1);
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void item(fmt::format_string<Args...> format, Args&&... args) {
    out_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void name(uint32_t pid, uint32_t tid, std::string_view what, std::string_view text) {
    item(R"({{"ph": "M", "pid": {}, "tid": {}, "name": "{}", "args": {{"name": {}}}}})", pid, tid, what,
         json_string(text));
  }
  // Microseconds, exact to the nanosecond.
  static std::string us(uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
  void span(uint32_t pid, uint32_t tid, std::string_view category, std::string_view text, uint64_t begin_ns,
            uint64_t end_ns, std::string_view args) {
    item(R"({{"ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "cat": "{}", "name": {}, "args": {{{}}}}})", pid,
         tid, us(begin_ns), us(end_ns - begin_ns), category, json_string(text), args);
  }

  void add_trace(const AnalysedTrace& t, uint32_t pid) {
    const Trace& trace = t.trace;
    const Dependencies deps(trace);
    name(pid, 0, "process_name", fmt::format("{} ({})", trace.meta.name, trace.meta.graph));
    uint32_t tid = 1;
    name(pid, tid, "thread_name", "critical path");
    for (const CriticalLink& link : t.analysis.critical)
      span(pid, tid, to_string(link.kind), link_name(trace, link), link.begin_ns, link.end_ns, "");
    for (const Track& track : lay_out(trace)) {
      name(pid, ++tid, "thread_name", track.name);
      for (const TrackSpan& s : track.spans) {
        if (track.role != 0) {
          const RoleInterval& r = trace.roles[s.item];
          span(pid, tid, role_name(r.role), trace.ops[trace.tasks[r.task].op].name, r.begin_ns, r.end_ns, "");
          continue;
        }
        if (s.wait_begin_ns < s.begin_ns) {
          const uint32_t e = deps.binding(s.item).event;
          span(pid, tid, "wait", e == kNoTraceEvent ? "wait" : "wait " + trace.events[e].name, s.wait_begin_ns,
               s.begin_ns, "");
        }
        const TraceTask& task = trace.tasks[s.item];
        span(pid, tid, "task", trace.ops[task.op].name, s.begin_ns, s.end_ns,
             fmt::format(R"("task": {}, "tile": {}, "position": {}, "slack_ns": {}, "bytes": {})", task.id,
                         json_string(trace.texts[task.tile]), task.position, t.analysis.slack_ns[s.item],
                         task.weight_bytes + task.other_bytes));
      }
    }
  }

  std::string out_;
  bool is_first_ = true;
};

}  // namespace

std::string to_chrome(std::span<const AnalysedTrace> traces) { return ChromeWriter().write(traces); }

}  // namespace megartp::trace
