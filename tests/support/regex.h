// <regex> for tests, which include it from nowhere else: at -Og g++ 12 warns of its code, inlined into the tests,
// although it is sound.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <regex>
#pragma GCC diagnostic pop
#else
#include <regex>
#endif
