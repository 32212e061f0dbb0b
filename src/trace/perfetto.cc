// Perfetto's trace format, the part that we need, written by hand: tests/trace/perfetto_subset.proto lists its messages
// and fields, and a test decodes what is written here with protoc.
#include <cstring>

#include <fmt/format.h>

#include "trace/dependencies.h"
#include "trace/export.h"

namespace megartp::trace {
namespace {

// Protocol buffers: a field is its number and type, then the value.
class Message {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
  }
  void text(uint32_t field, std::string_view value) {
    varint(uint64_t{field} << 3 | 2U);
    varint(value.size());
    bytes_ += value;
  }
  void message(uint32_t field, const Message& value) { text(field, value.bytes_); }
  void fixed64(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3 | 1U);
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xffU);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7fU) | 0x80U);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Field numbers of Perfetto's messages.
namespace trace_packet {
constexpr uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kTrackDescriptor = 60;
}
namespace track_descriptor {
constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4;
}
namespace track_event {
constexpr uint32_t kDebugAnnotations = 4, kType = 9, kTrackUuid = 11, kCategories = 22, kName = 23, kFlowIds = 47;
constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2;
}  // namespace track_event
namespace debug_annotation {
constexpr uint32_t kUintValue = 3, kStringValue = 6, kName = 10;
}

class PerfettoWriter {
 public:
  std::string write(std::span<const AnalysedTrace> traces) {
    for (uint32_t i = 0; i < traces.size(); ++i) add_trace(traces[i], i + 1);
    return std::move(out_);
  }

 private:
  void packet(const Message& message) {
    Message trace;
    trace.message(1, message);
    out_ += trace.bytes();
  }

  void describe_process(uint32_t pid, const std::string& name) {
    Message process;
    process.number(1, pid);
    process.text(6, name);
    Message track;
    track.number(track_descriptor::kUuid, uuid(pid, 0));
    track.message(track_descriptor::kProcess, process);
    describe(track);
  }
  void describe_thread(uint32_t pid, uint32_t tid, const std::string& name) {
    Message thread;
    thread.number(1, pid);
    thread.number(2, tid);
    thread.text(5, name);
    Message track;
    track.number(track_descriptor::kUuid, uuid(pid, tid));
    track.text(track_descriptor::kName, name);
    track.message(track_descriptor::kThread, thread);
    describe(track);
  }
  void describe(const Message& track) {
    Message p;
    p.number(trace_packet::kSequenceId, 1);
    p.message(trace_packet::kTrackDescriptor, track);
    packet(p);
  }

  static uint64_t uuid(uint32_t pid, uint32_t tid) { return uint64_t{pid} << 32 | tid; }
  static void annotate(Message& event, std::string_view name, std::string_view text) {
    Message a;
    a.text(debug_annotation::kName, name);
    a.text(debug_annotation::kStringValue, text);
    event.message(track_event::kDebugAnnotations, a);
  }
  static void annotate(Message& event, std::string_view name, uint64_t value) {
    Message a;
    a.text(debug_annotation::kName, name);
    a.number(debug_annotation::kUintValue, value);
    event.message(track_event::kDebugAnnotations, a);
  }

  static Message slice(uint64_t track, std::string_view category, std::string_view name) {
    Message event;
    event.number(track_event::kType, track_event::kSliceBegin);
    event.number(track_event::kTrackUuid, track);
    event.text(track_event::kCategories, category);
    event.text(track_event::kName, name);
    return event;
  }
  void event(uint64_t time_ns, const Message& track_event) {
    Message p;
    p.number(trace_packet::kTimestamp, time_ns);
    p.number(trace_packet::kSequenceId, 1);
    p.message(trace_packet::kTrackEvent, track_event);
    packet(p);
  }
  void add_slice(const Message& begin, uint64_t track, uint64_t begin_ns, uint64_t end_ns) {
    event(begin_ns, begin);
    Message end;
    end.number(track_event::kType, track_event::kSliceEnd);
    end.number(track_event::kTrackUuid, track);
    event(end_ns, end);
  }

  void add_trace(const AnalysedTrace& t, uint32_t pid) {
    const Trace& trace = t.trace;
    describe_process(pid, fmt::format("{} ({})", trace.meta.name, trace.meta.graph));
    std::vector<bool> is_critical(trace.tasks.size());
    for (const CriticalLink& link : t.analysis.critical) is_critical[link.task] = true;
    const Dependencies deps(trace);
    uint32_t tid = 1;
    describe_thread(pid, tid, "critical path");
    for (const CriticalLink& link : t.analysis.critical)
      add_slice(slice(uuid(pid, tid), to_string(link.kind), link_name(trace, link)), uuid(pid, tid), link.begin_ns,
                link.end_ns);
    for (const Track& track : lay_out(trace)) {
      const uint64_t id = uuid(pid, ++tid);
      describe_thread(pid, tid, track.name);
      for (const TrackSpan& span : track.spans) {
        if (track.role != 0) {
          const RoleInterval& r = trace.roles[span.item];
          add_slice(slice(id, role_name(r.role), trace.ops[trace.tasks[r.task].op].name), id, r.begin_ns, r.end_ns);
          continue;
        }
        const TraceTask& task = trace.tasks[span.item];
        if (span.wait_begin_ns < span.begin_ns) {
          const uint32_t e = deps.binding(span.item).event;
          add_slice(slice(id, "wait", e == kNoTraceEvent ? "wait" : "wait " + trace.events[e].name), id,
                    span.wait_begin_ns, span.begin_ns);
        }
        Message begin = slice(id, "task", trace.ops[task.op].name);
        if (is_critical[span.item]) begin.fixed64(track_event::kFlowIds, pid);
        annotate(begin, "task", task.id);
        annotate(begin, "tile", trace.texts[task.tile]);
        annotate(begin, "position", task.position);
        annotate(begin, "slack_ns", t.analysis.slack_ns[span.item]);
        if (task.weight_bytes + task.other_bytes > 0) annotate(begin, "bytes", task.weight_bytes + task.other_bytes);
        add_slice(begin, id, span.begin_ns, span.end_ns);
      }
    }
  }

  std::string out_;
};

}  // namespace

std::string to_perfetto(std::span<const AnalysedTrace> traces) { return PerfettoWriter().write(traces); }

}  // namespace megartp::trace
