// Every decoded instruction as one line of text, for comparison with a disassembler (tools/compare_sass.py).
#pragma once

#include <string>

#include "verify/sass/cubin.h"

namespace megartp::sass {

// Lines of tab-separated fields; first "kernel", section; then for each instruction
//   offset (hex), opcode (hex), guard ("@!P0" or "-"), mnemonic ("?" when unknown), kind of global access or "-", "nc"
//   or "-", target (hex) or "-", constant operand "c[bank][offset]" of LDC and ULDC or "-"
std::string listing(const Cubin& cubin);

}  // namespace megartp::sass
