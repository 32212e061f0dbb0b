// megartp trace: what its subcommands share.
#include "cli/trace.h"

#include <fmt/format.h>

namespace megartp::cli {

std::vector<Command> add_trace_commands(CLI::App& root) {
  CLI::App* app = root.add_subcommand("trace", "Record a run, show where its time went, ask what would change it");
  app->require_subcommand(1);
  return {add_trace_record_command(*app), add_trace_show_command(*app), add_trace_what_if_command(*app),
          add_trace_simulate_command(*app)};
}

Json trace_summary_json(const trace::AnalysedTrace& t) {
  const trace::TraceMeta& m = t.trace.meta;
  Json j{{"name", m.name},
         {"backend", m.backend},
         {"graph", m.graph},
         {"machine", m.machine},
         {"target", m.target},
         {"packer", m.packer},
         {"schedule", m.schedule},
         {"clock_domain", m.clock_domain},
         {"clock_resolution_ns", m.clock_resolution_ns}};
  for (const auto& [name, value] : m.shapes) j["shapes"][name] = value;
  j["span_ns"] = m.span_ns;
  if (m.timed_ns > 0) j["timed_ns"] = m.timed_ns;
  j["lost"] = m.num_lost;
  j["lanes"] = t.trace.lanes.size();
  j["units"] = t.analysis.num_units;
  j["tasks"] = t.trace.tasks.size();
  j["events"] = t.trace.events.size();
  j["critical_path"] = {{"links", t.analysis.critical.size()}, {"sum_ns", t.analysis.critical_ns()}};
  for (uint32_t k = 0; k < trace::kLinkKinds; ++k)
    j["critical_path"][fmt::format("{}_ns", to_string(static_cast<trace::LinkKind>(k)))] = t.analysis.link_ns[k];
  j["busy_ns"] = t.analysis.busy_ns;
  j["idle"] = Json::array();
  for (uint32_t r = 0; r < trace::kIdleReasons; ++r)
    j["idle"].push_back({{"reason", to_string(static_cast<trace::IdleReason>(r))}, {"ns", t.analysis.idle_ns[r]}});
  j["ops"] = Json::array();
  for (size_t op = 0; op < t.trace.ops.size(); ++op) {
    const trace::OpTime& time = t.analysis.ops[op];
    j["ops"].push_back({{"name", t.trace.ops[op].name},
                        {"tasks", time.num_tasks},
                        {"busy_ns", time.busy_ns},
                        {"running_ns", time.running_ns},
                        {"alone_ns", time.alone_ns},
                        {"critical_ns", time.critical_ns}});
  }
  j["overlaps"] = Json::array();
  for (const trace::OpOverlap& o : t.analysis.overlaps)
    j["overlaps"].push_back({{"a", t.trace.ops[o.a].name}, {"b", t.trace.ops[o.b].name}, {"ns", o.ns}});
  return j;
}

std::string trace_summary_line(const trace::AnalysedTrace& t) {
  std::string links;
  for (uint32_t k = 0; k < trace::kLinkKinds; ++k)
    if (t.analysis.link_ns[k] != 0)
      links += fmt::format("{}{} {:.1f}", links.empty() ? "" : " + ", to_string(static_cast<trace::LinkKind>(k)),
                           static_cast<double>(t.analysis.link_ns[k]) / 1e3);
  return fmt::format("{} tasks on {} lanes, {:.1f} us; critical path {:.1f} us = {}", t.trace.tasks.size(),
                     t.analysis.num_units, static_cast<double>(t.trace.meta.span_ns) / 1e3,
                     static_cast<double>(t.analysis.critical_ns()) / 1e3, links);
}

}  // namespace megartp::cli
