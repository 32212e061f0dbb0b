// What `megartp plan` shows besides its summary: why tasks wait (--explain), and the graph in MPK's shape (--format
// mpk).
#pragma once

#include <string>

#include "cli/cli.h"
#include "lowering/task_graph.h"

namespace megartp::cli {

// A table of edges and the figures of the whole graph.
std::string explain_text(const TaskGraph& graph);
Json explain_json(const TaskGraph& graph);

// Lowers to one wait and one signal a task and writes MPK's JSON to `output` ("" and "-": stdout). `format` is "mpk",
// or "mpk-launch" for the file before MPK's ahead-of-time rewrite. Returns the exit code.
int export_mpk(const OpGraph& graph, const ShapeEnv& shapes, const PlanOptions& plan, const CommonOptions& common,
               const std::string& format, const std::string& output);

}  // namespace megartp::cli
