// Does a family's check_instruction keep run_tile inside its operands? Plans come from files, so any words may arrive.
//
// Lowers one op, then changes spec words, payload words and operand types at random. Whatever check_instruction accepts
// is run on operands of exactly the stated sizes, with guard bytes around them (and the sanitizer's, when built with
// it).
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/op_harness.h"

namespace megartp::test {

struct InstructionFuzzResult {
  size_t num_accepted = 0;  // accepted and run; a useful case has many
  size_t num_refused = 0;
};

// Reports a changed guard byte through GoogleTest. Inputs hold zeros.
InstructionFuzzResult fuzz_check_instruction(const OpCase& op_case, FinalizerMode mode, size_t iterations,
                                             uint64_t seed);

}  // namespace megartp::test
