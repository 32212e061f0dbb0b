// The values of the trace (sass_trace.h) and the effect of one instruction on them. Used by sass_trace.cc only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "verify/sass/cubin.h"
#include "verify/sass/sass_decode.h"
#include "verify/sass/sass_trace.h"

namespace megartp::sass {

// A word of `words` is a 32-bit word of the parameter block, or, with kAddressBit, a byte offset into the block whose
// address this is.
struct Value {
  static constexpr uint16_t kAddressBit = 0x8000;
  static constexpr size_t kMaxWords = 6;
  static constexpr size_t kMaxConstants = 4;

  uint8_t flags = 0;
  uint8_t num_words = 0;
  uint8_t num_constants = 0;                        // 0: may be any number
  std::array<uint16_t, kMaxWords> words{};          // sorted
  std::array<uint16_t, kMaxConstants> constants{};  // sorted; the value is one of them

  bool operator==(const Value&) const = default;
  void insert(uint16_t word);
  bool contains(uint16_t word) const;
  void forget_constants();

  static Value literal(uint32_t number);
};

// Either of two values.
Value join(const Value& a, const Value& b);
// A sum or other mixture: where one operand holds pointers and nothing else, or the other none, the other is an offset.
Value mix(const Value& a, const Value& b);

// A predicate by number: the uniform ones follow the others.
inline constexpr uint8_t kFirstUniformPredicate = 8;
inline constexpr uint8_t kNoPredicate = Instruction::kAlways;

// A register. Where a guarded instruction wrote it last, what it holds when the guard was true is kept apart from what
// it holds otherwise, for later instructions under the same guard, until the predicate changes.
class Register {
 public:
  Register() = default;
  explicit Register(const Value& v) : when_true_(v) {}

  Value any() const;
  // As an instruction sees it that runs only when the predicate is true (or false, when negated).
  Value given(uint8_t predicate, bool negated) const;
  void write_if(uint8_t predicate, bool negated, const Value& v);
  bool is_split_by(uint8_t predicate) const { return predicate != kNoPredicate && predicate_ == predicate; }
  void forget_predicate(uint8_t predicate);
  // Takes in what another path brings; true when that changed something.
  bool join_with(const Register& other);

 private:
  uint8_t predicate_ = kNoPredicate;  // none: not split
  Value when_true_, when_false_;      // unsplit: the first
};

struct Registers {
  std::array<Register, 256> vector;
  std::array<Register, 64> uniform;
  std::array<uint8_t, 8> predicates{};  // flags only; index 7 is always true
  std::array<uint8_t, 8> uniform_predicates{};
  // The uniform predicate that a predicate is a copy of, or none.
  std::array<uint8_t, 8> copy_of{kNoPredicate, kNoPredicate, kNoPredicate, kNoPredicate,
                                 kNoPredicate, kNoPredicate, kNoPredicate, kNoPredicate};

  // What an instruction under a guard sees of a register.
  Value seen(const Register& reg, uint8_t guard, bool negated) const;
  void forget_predicate(uint8_t predicate);

  // Takes in what another path brings; true when that changed something.
  bool join_with(const Registers& other);
};

// The parameter block of a kernel, to tell pointers from scalars.
class ParamBlock {
 public:
  // `scalars`: as in scan_kernel().
  explicit ParamBlock(const CubinKernel& kernel, std::span<const uint32_t> scalars = {})
      : kernel_(&kernel), scalars_(scalars) {}
  // The 32-bit word at an offset of a constant bank.
  Value constant(uint32_t bank, uint32_t offset) const;
  // The parameter that covers an offset of the block, or null.
  const KernelParam* find(uint32_t offset) const;

 private:
  const CubinKernel* kernel_;
  std::span<const uint32_t> scalars_;
};

// What the predicates of the instruction depend on: its guard, and the second predicate of control instructions.
uint8_t condition_flags(const Instruction& in, const Registers& r);
// Of an access that the instruction does.
AddressBase resolve_base(const Instruction& in, const GlobalAccess& access, const Registers& r);
void execute(const Instruction& in, const ParamBlock& params, Registers& r);

}  // namespace megartp::sass
