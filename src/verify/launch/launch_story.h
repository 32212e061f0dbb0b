// Counter-examples: a shortest interleaving in which one access overtakes another.
#pragma once

#include <string>
#include <vector>

#include "verify/launch/launch_finding.h"

namespace megartp::launch {

// The steps that must come before the second access, and that access. For a conflict that find_gap objects to, the
// first access is not among them, or not visible; launch_explore.h can run them.
std::vector<Step> tell_story(const Graph& graph, const Conflict& conflict);

// "reads t[0,64)"
std::string access_text(const Graph& graph, const Access& access, uint64_t begin, uint64_t end);
// "RAW", "WAR" or "WAW"
std::string_view hazard_name(const Access& first, const Access& second);

}  // namespace megartp::launch
