// Reader of cubins: the ELF files that nvcc and ptxas write for one GPU architecture, here sm_90.
//
// megartp verify cubin and the scan of compiled kernels use it. Input is not trusted: every offset and size is checked,
// and an error (code kParse, or kUnsupported for what is no bare sm_90 cubin) names section and offset. Nothing here
// needs a CUDA toolkit.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"

namespace megartp::sass {

inline constexpr uint32_t kInstructionBytes = 16;

struct KernelParam {
  uint32_t ordinal = 0;
  uint32_t offset = 0;  // from the start of the parameter block
  uint32_t num_bytes = 0;
};

// A function in the section of a kernel: the kernel itself, or one that was not inlined into it.
struct CodeSymbol {
  std::string name;
  uint32_t offset = 0;
};

struct CubinKernel {
  std::string name;     // as mangled
  std::string section;  // ".text.NAME"
  uint32_t entry = 0;   // byte offset of the first instruction
  std::vector<std::array<uint64_t, 2>> code;
  std::vector<CodeSymbol> functions;  // by offset
  std::vector<KernelParam> params;    // by offset
  uint32_t param_base = 0;            // where the parameter block stands in constant bank 0
  uint32_t param_bytes = 0;
  uint32_t num_registers = 0;
  uint32_t frame_bytes = 0;        // stack of this function, a thread
  uint32_t static_smem_bytes = 0;  // __shared__ variables
  uint64_t max_threads = 0;        // of a CTA, from __launch_bounds__; 0: not given
  std::vector<uint32_t> exit_offsets;
  std::map<uint32_t, std::vector<uint32_t>>
      branch_targets;  // offset of an indirect branch -> offsets that it may go to
};

struct Cubin {
  uint32_t sm = 0;  // 90
  std::vector<CubinKernel> kernels;
};

// Whether bytes begin as something that parse_cubin reads or has a special error for is decided inside; any bytes may
// be given.
Result<Cubin> parse_cubin(std::string_view bytes);
Result<Cubin> load_cubin(const std::string& path);

}  // namespace megartp::sass
