// The .nv.info sections of a cubin: lists of attributes that ptxas leaves for the driver.
//
//   byte 0  format: 1 no value, 2 a byte, 3 two bytes, 4 a size of two bytes and as many bytes behind it
//   byte 1  attribute
//   byte 2  value or size
#pragma once

#include <cstdint>
#include <functional>

#include "verify/sass/cubin.h"
#include "verify/sass/elf_bytes.h"

namespace megartp::sass {

// Fills in what the section says. `owner` is the kernel that the section belongs to, null for the one section about
// all; `kernel_of_symbol` finds the kernel that a symbol number names, or null.
Status read_info_section(const ElfBytes& section, CubinKernel* owner,
                         const std::function<CubinKernel*(uint32_t)>& kernel_of_symbol);

}  // namespace megartp::sass
