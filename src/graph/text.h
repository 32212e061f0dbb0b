// Text helpers of the graph layer: what a name may contain, and how names are quoted in messages.
//
// Called by OpGraph, the schema helpers and the JSON reader. Invariant: a message built with quote_name() is one line
// of valid UTF-8, whatever bytes the name holds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace megartp {

inline constexpr size_t kMaxNameBytes = 256;

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view text);

// What is wrong with `name` as the name of a graph, op or tensor ("is empty", "is longer than 256 bytes", ...), or "".
std::string_view name_problem(std::string_view name);

// 'name' for a message: control characters and malformed bytes as \n, \t, \xNN; long text is cut and marked with "...".
std::string quote_name(std::string_view name);

}  // namespace megartp
