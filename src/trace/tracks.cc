#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trace/export.h"

namespace megartp::trace {
namespace {

// Spans of one unit, in the order of begin, go to the first track that is free.
void place_spans(std::vector<TrackSpan> spans, const std::string& name, uint32_t unit, uint32_t role,
                 std::vector<Track>& out) {
  std::ranges::stable_sort(spans, {}, [](const TrackSpan& s) { return std::tuple(s.begin_ns, s.end_ns); });
  const size_t first = out.size();
  for (TrackSpan& span : spans) {
    size_t at = first;
    while (at < out.size() && !out[at].spans.empty() && out[at].spans.back().end_ns > span.begin_ns) ++at;
    if (at == out.size()) {
      const std::string part = at == first ? "" : fmt::format(", {}", at - first + 1);
      out.push_back({name + part, unit, role, {}});
    }
    if (!out[at].spans.empty())
      span.wait_begin_ns = std::clamp(span.wait_begin_ns, out[at].spans.back().end_ns, span.begin_ns);
    out[at].spans.push_back(span);
  }
}

}  // namespace

TraceUnits units_of(const Trace& trace) {
  TraceUnits units;
  std::map<uint32_t, uint32_t> place;
  for (const Lane& lane : trace.lanes) {
    const auto [at, is_new] = place.emplace(lane.unit, static_cast<uint32_t>(units.names.size()));
    if (is_new) units.names.push_back(lane.name);
    units.of_lane.push_back(at->second);
  }
  return units;
}

std::vector<Track> lay_out(const Trace& trace) {
  const TraceUnits units = units_of(trace);
  const auto num_units = static_cast<uint32_t>(units.names.size());
  std::vector<Track> tracks;
  std::vector<std::vector<TrackSpan>> spans(num_units);
  for (uint32_t t = 0; t < trace.tasks.size(); ++t) {
    const TraceTask& task = trace.tasks[t];
    spans[units.of_lane[task.lane]].push_back({t, task.ready_ns, task.done_ns, task.visible_ns});
  }
  for (uint32_t unit = 0; unit < num_units; ++unit) {
    if (spans[unit].empty()) tracks.push_back({units.names[unit], unit, 0, {}});
    place_spans(std::move(spans[unit]), units.names[unit], unit, 0, tracks);
  }
  for (uint32_t role = 1; role < abi::kTraceRoles; ++role) {
    std::vector<std::vector<TrackSpan>> parts(num_units);
    for (uint32_t i = 0; i < trace.roles.size(); ++i) {
      const RoleInterval& r = trace.roles[i];
      if (r.role == role)
        parts[units.of_lane[trace.tasks[r.task].lane]].push_back({i, r.begin_ns, r.end_ns, r.begin_ns});
    }
    for (uint32_t unit = 0; unit < num_units; ++unit)
      if (!parts[unit].empty())
        place_spans(std::move(parts[unit]), fmt::format("{}, {}", units.names[unit], role_name(role)), unit, role,
                    tracks);
  }
  return tracks;
}

std::string link_name(const Trace& trace, const CriticalLink& link) {
  const std::string& op = trace.ops[trace.tasks[link.task].op].name;
  switch (link.kind) {
    case LinkKind::kCompute:
    case LinkKind::kWeights: return op;
    case LinkKind::kWait: return fmt::format("wait {}", trace.events[link.event].name);
    case LinkKind::kQueue: return fmt::format("queue before {}", op);
    case LinkKind::kLaunch: return "launch";
  }
  return "?";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace megartp::trace
