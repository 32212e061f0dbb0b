// Where the values in registers come from: which kernel parameters an address is made of, and what a branch condition
// depends on.
//
// A forward analysis over the flow graph, used by the scan. Of a value it keeps the set of 32-bit parameter words that
// went into it as base of an address, and what else went in (thread index, block index, memory, ...). Adding an index
// to a pointer keeps the pointer's parameter; joining two paths keeps both; anything that is not followed (memory,
// shuffles, float arithmetic) gives an unknown base, never a wrong one, with the exceptions that docs/sass-scan.md
// names.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verify/sass/cubin.h"
#include "verify/sass/sass_flow.h"

namespace megartp::sass {

// What went into a value besides pointers that are parameters.
enum SourceFlag : uint8_t {
  kFromThread = 1,    // thread index, lane, election
  kFromBlock = 2,     // block index
  kFromLaunch = 4,    // block and grid dimensions
  kFromScalar = 8,    // parameters that are no pointers
  kFromMemory = 16,   // loaded
  kFromUnknown = 32,  // by an instruction that is not followed
  kTooMany = 64,      // more parameters than are kept
};

struct AddressBase {
  // Byte offsets, in the parameter block, of the pointers (or tensor descriptors) that the address may be based on.
  std::vector<uint32_t> param_offsets;
  bool may_be_other = false;    // may as well be based on something that is no parameter
  bool is_param_block = false;  // the address of a parameter itself (a descriptor passed by value)
  // The parameters are all that the address can be based on.
  bool is_known() const { return !param_offsets.empty() && !may_be_other; }
};

class Trace {
 public:
  // `scalars`: as in scan_kernel().
  Trace(const CubinKernel& kernel, const FlowGraph& flow, std::span<const uint32_t> scalars = {});

  // Of an instruction that has a global_access().
  const AddressBase& base(uint32_t instruction) const;
  // What the predicates of a conditional instruction depend on (SourceFlag).
  uint8_t condition(uint32_t instruction) const { return conditions_[instruction]; }
  // False where the flow is unknown or the kernel too large: then every base is unknown.
  bool is_complete() const { return is_complete_; }

 private:
  std::vector<AddressBase> bases_;
  std::vector<uint32_t> base_of_;  // index into bases_ of each instruction
  std::vector<uint8_t> conditions_;
  bool is_complete_ = false;
};

}  // namespace megartp::sass
