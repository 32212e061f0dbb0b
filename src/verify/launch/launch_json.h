// The JSON form of launch graphs and programs; docs/launch-graphs.md describes it.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "verify/launch/launch_streams.h"

namespace megartp::launch {

// A file holds one of the two.
using LaunchInput = std::variant<Graph, Program>;

// Strict: unknown and repeated keys, wrong types, unknown names and contracts without meaning are errors of code kParse
// that name the place, the node and the buffer; a syntax error names its line.
Result<LaunchInput> launch_from_json(std::string_view text);

// Reading it gives the same graph or program.
std::string to_json(const Graph& graph);
std::string to_json(const Program& program);

// The graph of either, with what the conversion of a program found.
Result<LoweredProgram> to_graph(const LaunchInput& input);

}  // namespace megartp::launch
