// megartp trace and its subcommands, one file each.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "trace/export.h"

namespace megartp::cli {

std::vector<Command> add_trace_commands(CLI::App& root);

Command add_trace_record_command(CLI::App& trace);
Command add_trace_show_command(CLI::App& trace);
Command add_trace_what_if_command(CLI::App& trace);
Command add_trace_simulate_command(CLI::App& trace);

// What --json says of a trace: span, sums of the critical path, idle time, ops.
Json trace_summary_json(const trace::AnalysedTrace& trace);
// One line: "T.trace: 732 tasks, 96.8 ms, critical path 96.8 ms = compute 90.1 ..."
std::string trace_summary_line(const trace::AnalysedTrace& trace);

}  // namespace megartp::cli
