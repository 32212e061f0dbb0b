#include <iterator>

#include <fmt/format.h>

#include "trace/export.h"

namespace megartp::trace {
namespace {

// Quoted where it must be.
std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string to_csv(std::span<const AnalysedTrace> traces) {
  std::string out =
      "trace,task,op,kind,tile,lane,position,visible_ns,ready_ns,done_ns,slack_ns,critical,weight_bytes,other_bytes,"
      "flops\r\n";
  for (const AnalysedTrace& t : traces) {
    std::vector<bool> is_critical(t.trace.tasks.size());
    for (const CriticalLink& link : t.analysis.critical) is_critical[link.task] = true;
    for (size_t i = 0; i < t.trace.tasks.size(); ++i) {
      const TraceTask& task = t.trace.tasks[i];
      const TraceOp& op = t.trace.ops[task.op];
      fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\r\n",
                     csv_field(t.trace.meta.name), task.id, csv_field(op.name), csv_field(op.kind),
                     csv_field(t.trace.texts[task.tile]), csv_field(t.trace.lanes[task.lane].name), task.position,
                     task.visible_ns, task.ready_ns, task.done_ns, t.analysis.slack_ns[i], is_critical[i] ? 1 : 0,
                     task.weight_bytes, task.other_bytes, task.flops);
    }
  }
  return out;
}

}  // namespace megartp::trace
