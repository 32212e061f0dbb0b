// The values of the trace (sass_trace.h) and the effect of one instruction on them. Used by sass_trace.cc only.
#pragma once

#include <array>
#include <cstdint>

#include "verify/sass/cubin.h"
#include "verify/sass/sass_decode.h"
#include "verify/sass/sass_trace.h"

namespace megartp::sass {

// A word of `words` is a 32-bit word of the parameter block, or, with kAddressBit, a byte offset into the block whose
// address this is.
struct Value {
  static constexpr uint16_t kAddressBit = 0x8000;
  static constexpr size_t kMaxWords = 6;

  uint8_t flags = 0;
  uint8_t num_words = 0;
  std::array<uint16_t, kMaxWords> words{};  // sorted

  bool operator==(const Value&) const = default;
  void insert(uint16_t word);
  bool contains(uint16_t word) const;
};

// Either of two values.
Value join(const Value& a, const Value& b);
// A sum or other mixture: where one operand holds pointers and the other none, the other is an offset.
Value mix(const Value& a, const Value& b);

struct Registers {
  std::array<Value, 256> vector;
  std::array<Value, 64> uniform;
  std::array<uint8_t, 8> predicates{};  // flags only; index 7 is always true
  std::array<uint8_t, 8> uniform_predicates{};

  // Takes in what another path brings; true when that changed something.
  bool join_with(const Registers& other);
};

// The parameter block of a kernel, to tell pointers from scalars.
class ParamBlock {
 public:
  explicit ParamBlock(const CubinKernel& kernel) : kernel_(&kernel) {}
  // The 32-bit word at an offset of a constant bank.
  Value constant(uint32_t bank, uint32_t offset) const;
  // The parameter that covers an offset of the block, or null.
  const KernelParam* find(uint32_t offset) const;

 private:
  const CubinKernel* kernel_;
};

// What the predicates of the instruction depend on: its guard, and the second predicate of control instructions.
uint8_t condition_flags(const Instruction& in, const Registers& r);
AddressBase resolve_base(const GlobalAccess& access, const Registers& r, const CubinKernel& kernel);
void execute(const Instruction& in, const ParamBlock& params, Registers& r);

}  // namespace megartp::sass
