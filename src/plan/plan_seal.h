// For fuzzers and tests: makes a changed plan file pass the size and checksum tests, so that what lies behind them is
// exercised.
#pragma once

#include <string>

namespace megartp {

// Rewrites file size and checksum of a plan file; does nothing to bytes too short to hold them.
void seal_plan_bytes(std::string& bytes);

}  // namespace megartp
