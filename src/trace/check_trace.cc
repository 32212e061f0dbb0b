#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "trace/trace.h"

namespace megartp::trace {
namespace {

template <class... Args>
tl::unexpected<Error> bad_trace(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kParse, "trace: " + fmt::format(format, std::forward<Args>(args)...));
}

// Well-formed UTF-8 without control characters: what every output format can hold.
bool is_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    size_t more = 0;
    if (c >= 0x20 && c < 0x7f)
      more = 0;
    else if (c >= 0xc2 && c <= 0xdf)
      more = 1;
    else if (c >= 0xe0 && c <= 0xef)
      more = 2;
    else if (c >= 0xf0 && c <= 0xf4)
      more = 3;
    else
      return false;
    if (more > text.size() - i - 1) return false;
    for (size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0U) != 0x80) return false;
    const auto second = more > 0 ? static_cast<unsigned char>(text[i + 1]) : 0U;
    // Overlong forms, surrogates, beyond U+10FFFF; U+0080 to U+009F are control characters.
    if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) || (c == 0xf0 && second < 0x90) ||
        (c == 0xf4 && second > 0x8f) || (c == 0xc2 && second < 0xa0))
      return false;
    i += more + 1;
  }
  return true;
}

Status check_names(const Trace& t) {
  const TraceMeta& m = t.meta;
  for (const std::string* s :
       {&m.name, &m.backend, &m.graph, &m.machine, &m.target, &m.packer, &m.schedule, &m.clock_domain})
    if (!is_text(*s)) return bad_trace("a name of the run is not plain text");
  if (!(m.clock_resolution_ns >= 0 && m.clock_resolution_ns < 1e18) ||
      !(m.read_gb_per_s >= 0 && m.read_gb_per_s < 1e18) || !(m.gflops >= 0 && m.gflops < 1e18) ||
      !(m.timed_ns >= 0 && m.timed_ns < 1e18))
    return bad_trace("clock resolution, time or rates are no possible numbers");
  const auto names_ok = [](const auto& list, auto name) {
    return std::ranges::all_of(list, [&](const auto& item) { return is_text(name(item)); });
  };
  if (!names_ok(m.shapes, [](const auto& s) { return s.first; })) return bad_trace("a shape's name is not plain text");
  if (!names_ok(t.lanes, [](const Lane& l) { return l.name; })) return bad_trace("a lane's name is not plain text");
  if (!names_ok(t.ops, [](const TraceOp& o) { return o.name + o.kind; }))
    return bad_trace("an op's name is not plain text");
  if (!names_ok(t.texts, [](const std::string& s) { return s; })) return bad_trace("a tile's text is not plain text");
  if (!names_ok(t.events, [](const TraceEvent& e) { return e.name; }))
    return bad_trace("an event's name is not plain text");
  if (!names_ok(t.kernel_edges, [](const KernelEdge& e) { return e.level; }))
    return bad_trace("an edge's level is not plain text");
  return {};
}

Status check_task(const Trace& t, size_t i) {
  const TraceTask& task = t.tasks[i];
  if (task.lane >= t.lanes.size()) return bad_trace("task {} is on lane {} of {}", i, task.lane, t.lanes.size());
  if (task.op >= t.ops.size()) return bad_trace("task {} is of op {} of {}", i, task.op, t.ops.size());
  if (task.tile >= t.texts.size()) return bad_trace("task {} has text {} of {}", i, task.tile, t.texts.size());
  if (task.visible_ns > task.ready_ns || task.ready_ns > task.done_ns || task.done_ns > t.meta.span_ns)
    return bad_trace("task {}: visible {}, ready {}, done {} of a run of {} ns", i, task.visible_ns, task.ready_ns,
                     task.done_ns, t.meta.span_ns);
  if (task.join_group != abi::kNoJoin && task.join_group >= t.tasks.size())
    return bad_trace("task {} is of join group {}, there are {} tasks", i, task.join_group, t.tasks.size());
  if (i == 0) return {};
  const TraceTask& before = t.tasks[i - 1];
  if (std::tuple(before.lane, before.position) >= std::tuple(task.lane, task.position))
    return bad_trace("task {} (lane {}, position {}) does not stand in order", i, task.lane, task.position);
  return {};
}

Status check_event(const Trace& t, size_t e) {
  const TraceEvent& event = t.events[e];
  const auto check = [&](const auto& list) -> Status {
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].task >= t.tasks.size() || (i > 0 && list[i].task <= list[i - 1].task))
        return bad_trace("event {} names task {} of {}, or not in order", e, list[i].task, t.tasks.size());
    return {};
  };
  MEGARTP_TRY(check(event.signals));
  return check(event.waits);
}

}  // namespace

std::string_view role_name(uint32_t role) {
  switch (role) {
    case abi::kTraceRoleWeights: return "weights";
    case abi::kTraceRoleActivations: return "activations";
    case abi::kTraceRoleCompute: return "compute";
    case abi::kTraceRoleStore: return "store";
    default: return "?";
  }
}

Status check_trace(const Trace& t) {
  if (t.lanes.empty()) return bad_trace("there is no lane");
  // Sums of times and of bytes stay below 2^64.
  if (t.meta.span_ns > uint64_t{1} << 62) return bad_trace("a run of {} ns", t.meta.span_ns);
  MEGARTP_TRY(check_names(t));
  for (size_t i = 0; i < t.tasks.size(); ++i) MEGARTP_TRY(check_task(t, i));
  for (size_t i = 0; i < t.roles.size(); ++i) {
    const RoleInterval& r = t.roles[i];
    if (r.task >= t.tasks.size() || r.role == 0 || r.role >= abi::kTraceRoles)
      return bad_trace("interval {} is role {} of task {} of {}", i, r.role, r.task, t.tasks.size());
    if (r.begin_ns > r.end_ns || r.end_ns > t.meta.span_ns)
      return bad_trace("interval {} is from {} to {} ns of {}", i, r.begin_ns, r.end_ns, t.meta.span_ns);
    if (i > 0 && std::tuple(t.roles[i - 1].task, t.roles[i - 1].begin_ns) > std::tuple(r.task, r.begin_ns))
      return bad_trace("interval {} does not stand in order", i);
  }
  for (size_t e = 0; e < t.events.size(); ++e) MEGARTP_TRY(check_event(t, e));
  for (size_t i = 0; i < t.kernel_edges.size(); ++i)
    if (t.kernel_edges[i].from >= t.ops.size() || t.kernel_edges[i].to >= t.ops.size())
      return bad_trace("edge {} is between kernels {} and {} of {}", i, t.kernel_edges[i].from, t.kernel_edges[i].to,
                       t.ops.size());
  return {};
}

}  // namespace megartp::trace
