// Traces in the formats of other programs, and for people.
//
// Called by `megartp trace show`. All take traces that check_trace() accepts, and what analyse() said of them.
// Invariant of perfetto, chrome and svg: spans of one track never overlap in part; lay_out() sees to that.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/analysis.h"
#include "trace/trace.h"

namespace megartp::trace {

struct AnalysedTrace {
  Trace trace;
  Analysis analysis;
};

// Perfetto's protobuf (https://ui.perfetto.dev): a process a trace; a track a worker or SM, or several where its tasks
// overlap, one for each role, one for the critical path.
std::string to_perfetto(std::span<const AnalysedTrace> traces);
// Chrome's trace event JSON (chrome://tracing, Perfetto), the same tracks.
std::string to_chrome(std::span<const AnalysedTrace> traces);
// One picture of one trace, for documents; light and dark.
std::string to_svg(const AnalysedTrace& trace);
// A line a task, RFC 4180, with a header line.
std::string to_csv(std::span<const AnalysedTrace> traces);
// The data of the HTML report (src/trace/viewer/README.md), and the report.
std::string to_viewer_json(std::span<const AnalysedTrace> traces);
std::string to_html(std::span<const AnalysedTrace> traces);

struct TextOptions {
  uint32_t width = 100;     // columns
  uint32_t max_lanes = 40;  // workers or SMs; more are left out
  bool color = false;
};
// A chart of the workers or SMs and what analyse() found.
std::string to_text(const AnalysedTrace& trace, const TextOptions& options);

// --- workers and SMs ---

// An SM has a lane for each CTA that it held at once, most of which wait most of the time: people are shown one row a
// worker or SM, in which only work that overlaps needs room beside each other.
struct TraceUnits {
  std::vector<std::string> names;  // of its first lane, in the order of lanes
  std::vector<uint32_t> of_lane;   // index into names
};
TraceUnits units_of(const Trace& trace);

// --- tracks ---

struct TrackSpan {
  uint32_t item = 0;  // task, or index into Trace::roles
  uint64_t begin_ns = 0, end_ns = 0;
  uint64_t wait_begin_ns = 0;  // of tasks: from when they wait on this track; begin_ns when they do not
};
// Spans in order, none beginning before the last one ended.
struct Track {
  std::string name;
  uint32_t unit = 0;  // into TraceUnits::names
  uint32_t role = 0;  // 0: tasks
  std::vector<TrackSpan> spans;
};
// Tracks of tasks in the order of units; one whose tasks overlap has several. Then those of the roles.
std::vector<Track> lay_out(const Trace& trace);

// "B0.gemm compute", "wait e12 A0", "launch": what a link of the critical path is called.
std::string link_name(const Trace& trace, const CriticalLink& link);

// The text as a JSON string, quotes included.
std::string json_string(std::string_view text);

}  // namespace megartp::trace
