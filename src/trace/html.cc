#include <iterator>

#include <fmt/format.h>

#include "trace/export.h"
#include "trace/viewer/viewer_page.h"

namespace megartp::trace {
namespace {

template <class List, class Text>
std::string json_list(const List& list, Text text) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ',';
    out += text(item);
  }
  return out + "]";
}

std::string events_json(const Trace& trace) {
  const auto number = [](const auto& item) { return std::to_string(item.task); };
  return json_list(trace.events, [&](const TraceEvent& e) {
    // Who did signal: of a join group its last member.
    std::vector<EventSignal> sent;
    for (const EventSignal& s : e.signals)
      if (trace.tasks[s.task].sent) sent.push_back(s);
    return fmt::format(R"({{"name":{},"signallers":{},"waiters":{}}})", json_string(e.name), json_list(sent, number),
                       json_list(e.waits, number));
  });
}

std::string trace_json(const AnalysedTrace& t) {
  const Trace& trace = t.trace;
  const TraceMeta& m = trace.meta;
  const TraceUnits units = units_of(trace);
  std::string out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, R"({{"name":{},"backend":{},"machine":{},"graph":{},"shapes":{{)", json_string(m.name),
                 json_string(m.backend), json_string(m.machine), json_string(m.graph));
  for (size_t i = 0; i < m.shapes.size(); ++i)
    fmt::format_to(to, "{}{}:{}", i == 0 ? "" : ",", json_string(m.shapes[i].first), m.shapes[i].second);
  fmt::format_to(to, R"(}},"clock":{{"domain":{},"resolution_ns":{}}},"span_ns":{},"lost":{},)",
                 json_string(m.clock_domain), m.clock_resolution_ns, m.span_ns, m.num_lost);
  fmt::format_to(to, R"("lanes":{},"ops":{},)", json_list(units.names, json_string),
                 json_list(trace.ops, [](const TraceOp& op) {
                   return fmt::format(R"({{"name":{},"kind":{}}})", json_string(op.name), json_string(op.kind));
                 }));
  const auto column = [&](std::string_view name, auto value) {
    fmt::format_to(to, R"("{}":{},)", name, json_list(trace.tasks, value));
  };
  out += R"("tasks":{)";
  column("lane", [&](const TraceTask& task) { return std::to_string(units.of_lane[task.lane]); });
  column("op", [](const TraceTask& task) { return std::to_string(task.op); });
  column("tile", [&](const TraceTask& task) { return json_string(trace.texts[task.tile]); });
  column("visible", [](const TraceTask& task) { return std::to_string(task.visible_ns); });
  column("ready", [](const TraceTask& task) { return std::to_string(task.ready_ns); });
  column("done", [](const TraceTask& task) { return std::to_string(task.done_ns); });
  fmt::format_to(to, R"("slack":{}}},)",
                 json_list(t.analysis.slack_ns, [](uint64_t ns) { return std::to_string(ns); }));
  fmt::format_to(to, R"("events":{},)", events_json(trace));
  fmt::format_to(to, R"("critical":{},)", json_list(t.analysis.critical, [](const CriticalLink& link) {
                   const std::string event = link.kind == LinkKind::kWait ? std::to_string(link.event) : "-1";
                   return fmt::format(R"({{"task":{},"kind":"{}","begin":{},"end":{},"event":{}}})", link.task,
                                      to_string(link.kind), link.begin_ns, link.end_ns, event);
                 }));
  out += R"("idle":[)";
  bool is_first = true;
  for (uint32_t r = 0; r < kIdleReasons; ++r) {
    if (t.analysis.idle_ns[r] == 0) continue;
    fmt::format_to(to, R"({}{{"reason":"{}","ns":{}}})", is_first ? "" : ",", to_string(static_cast<IdleReason>(r)),
                   t.analysis.idle_ns[r]);
    is_first = false;
  }
  return out + "]}";
}

}  // namespace

std::string to_viewer_json(std::span<const AnalysedTrace> traces) {
  return fmt::format(R"({{"version":1,"traces":{}}})", json_list(traces, trace_json));
}

std::string to_html(std::span<const AnalysedTrace> traces) { return viewer_page(to_viewer_json(traces)); }

}  // namespace megartp::trace
