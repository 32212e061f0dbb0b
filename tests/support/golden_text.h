// Golden text: compares what the code writes with a file in the repository.
//
// Used by tests of text forms. With MEGARTP_UPDATE_GOLDEN=1 in the environment the file is rewritten instead, and the
// test is skipped so that a run that updates cannot be mistaken for one that passes.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace megartp::test {

inline std::string first_difference(std::string_view expected, std::string_view actual) {
  std::istringstream a{std::string(expected)};
  std::istringstream b{std::string(actual)};
  std::string expected_line;
  std::string actual_line;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, expected_line));
    const bool more_b = static_cast<bool>(std::getline(b, actual_line));
    if (!more_a && !more_b) return "only line ends differ";
    if (more_a && more_b && expected_line == actual_line) continue;
    return "line " + std::to_string(line) + "\n  expected: " + (more_a ? expected_line : "(end)") +
           "\n  actual:   " + (more_b ? actual_line : "(end)");
  }
}

inline void expect_golden_text(const std::string& path, const std::string& actual) {
  const char* update = std::getenv("MEGARTP_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    std::ofstream out(path, std::ios::binary);
    out << actual;
    out.close();
    ASSERT_TRUE(out) << "cannot write " << path;
    GTEST_SKIP() << "wrote " << path;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in) << "cannot read " << path << "; MEGARTP_UPDATE_GOLDEN=1 writes it";
  const std::string expected{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(expected == actual) << path << " differs at " << first_difference(expected, actual)
                                  << "\nMEGARTP_UPDATE_GOLDEN=1 rewrites it";
}

}  // namespace megartp::test
