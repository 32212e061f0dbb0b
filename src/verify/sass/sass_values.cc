#include "verify/sass/sass_values.h"

#include <algorithm>

#include "verify/sass/sass_opcodes.h"

namespace megartp::sass {
namespace {

constexpr uint8_t kOffsetOnly =
    kFromMemory | kFromUnknown | kTooMany;  // dropped from an offset that is added to a pointer
// Where bank 0 holds the generic address of the parameter block, for descriptors that are parameters.
constexpr uint32_t kParamAddress = 0x198;
constexpr uint32_t kPointerBytes = 8;

Value flagged(uint8_t flags) {
  Value v;
  v.flags = flags;
  return v;
}

}  // namespace

void Value::insert(uint16_t word) {
  const auto end = words.begin() + num_words;
  const auto at = std::lower_bound(words.begin(), end, word);
  if (at != end && *at == word) return;
  if (num_words == kMaxWords) {
    flags |= kTooMany;
    return;
  }
  std::copy_backward(at, end, end + 1);
  *at = word;
  ++num_words;
}

bool Value::contains(uint16_t word) const { return std::binary_search(words.begin(), words.begin() + num_words, word); }

void Value::forget_constants() {
  num_constants = 0;
  constants = {};
}

Value Value::literal(uint32_t number) {
  Value v;
  if (number > UINT16_MAX) return v;
  v.constants[0] = static_cast<uint16_t>(number);
  v.num_constants = 1;
  return v;
}

Value join(const Value& a, const Value& b) {
  Value out = a;
  out.flags |= b.flags;
  for (size_t i = 0; i < b.num_words; ++i) out.insert(b.words[i]);
  out.forget_constants();
  std::array<uint16_t, 2 * Value::kMaxConstants> both{};
  const auto end = std::set_union(a.constants.begin(), a.constants.begin() + a.num_constants, b.constants.begin(),
                                  b.constants.begin() + b.num_constants, both.begin());
  const auto count = static_cast<size_t>(end - both.begin());
  if (a.num_constants != 0 && b.num_constants != 0 && count <= Value::kMaxConstants) {
    std::copy(both.begin(), end, out.constants.begin());
    out.num_constants = static_cast<uint8_t>(count);
  }
  return out;
}

Value mix(const Value& a, const Value& b) {
  Value out = join(a, b);
  out.forget_constants();
  const auto is_pointer = [](const Value& v) { return v.num_words != 0 && (v.flags & kOffsetOnly) == 0; };
  if (is_pointer(a) || (a.num_words != 0 && b.num_words == 0))
    out.flags &= static_cast<uint8_t>(~(kOffsetOnly & ~a.flags));
  if (is_pointer(b) || (b.num_words != 0 && a.num_words == 0))
    out.flags &= static_cast<uint8_t>(~(kOffsetOnly & ~b.flags));
  return out;
}

Value Register::any() const { return predicate_ == kNoPredicate ? when_true_ : join(when_true_, when_false_); }

Value Register::given(uint8_t predicate, bool negated) const {
  if (predicate_ == kNoPredicate || predicate_ != predicate) return any();
  return negated ? when_false_ : when_true_;
}

void Register::write_if(uint8_t predicate, bool negated, const Value& v) {
  if (predicate == kNoPredicate) {
    *this = Register(join(any(), v));
    return;
  }
  if (predicate_ != predicate) {
    when_true_ = when_false_ = any();
    predicate_ = predicate;
  }
  (negated ? when_false_ : when_true_) = v;
}

void Register::forget_predicate(uint8_t predicate) {
  if (predicate_ == predicate && predicate != kNoPredicate) *this = Register(any());
}

bool Register::join_with(const Register& other) {
  const auto take = [](Value& mine, const Value& theirs) {
    const Value both = join(mine, theirs);
    const bool changed = both != mine;
    mine = both;
    return changed;
  };
  // Split registers only ever become whole ones, so that the analysis comes to an end.
  const bool was_split = predicate_ != kNoPredicate;
  if (predicate_ == other.predicate_) {
    const bool changed = take(when_true_, other.when_true_);
    return (was_split && take(when_false_, other.when_false_)) || changed;
  }
  *this = Register(any());
  return take(when_true_, other.any()) || was_split;
}

Value Registers::seen(const Register& reg, uint8_t guard, bool negated) const {
  if (guard < kNoPredicate && !reg.is_split_by(guard)) guard = copy_of[guard];
  return reg.given(guard, negated);
}

void Registers::forget_predicate(uint8_t predicate) {
  for (Register& reg : vector) reg.forget_predicate(predicate);
  for (Register& reg : uniform) reg.forget_predicate(predicate);
  for (size_t p = 0; p < copy_of.size(); ++p)
    if (p == predicate || copy_of[p] == predicate) copy_of[p] = kNoPredicate;
}

bool Registers::join_with(const Registers& other) {
  bool changed = false;
  for (size_t p = 0; p < copy_of.size(); ++p) {
    if (copy_of[p] == other.copy_of[p] || copy_of[p] == kNoPredicate) continue;
    copy_of[p] = kNoPredicate;
    changed = true;
  }
  for (size_t i = 0; i < vector.size(); ++i) changed |= vector[i].join_with(other.vector[i]);
  for (size_t i = 0; i < uniform.size(); ++i) changed |= uniform[i].join_with(other.uniform[i]);
  const auto take_flags = [&changed](uint8_t& mine, uint8_t theirs) {
    changed |= (theirs & ~mine) != 0;
    mine |= theirs;
  };
  for (size_t i = 0; i < predicates.size(); ++i) take_flags(predicates[i], other.predicates[i]);
  for (size_t i = 0; i < uniform_predicates.size(); ++i) take_flags(uniform_predicates[i], other.uniform_predicates[i]);
  return changed;
}

const KernelParam* ParamBlock::find(uint32_t offset) const {
  for (const KernelParam& p : kernel_->params)
    if (offset >= p.offset && offset - p.offset < p.num_bytes) return &p;
  return nullptr;
}

Value ParamBlock::constant(uint32_t bank, uint32_t offset) const {
  if (bank != 0) return flagged(kFromUnknown);
  Value v;
  const uint32_t base = kernel_->param_base;
  if (offset >= base && offset - base < kernel_->param_bytes) {
    const KernelParam* param = find(offset - base);
    const bool is_scalar = std::find(scalars_.begin(), scalars_.end(), offset - base) != scalars_.end();
    if (param == nullptr || param->num_bytes < kPointerBytes || is_scalar) return flagged(kFromScalar);
    v.insert(static_cast<uint16_t>((offset - base) / 4));
    return v;
  }
  if (offset == kParamAddress) {
    v.insert(Value::kAddressBit);
    return v;
  }
  return flagged(kFromLaunch);
}

uint8_t condition_flags(const Instruction& in, const Registers& r) {
  uint8_t flags = 0;
  if (in.is_guarded()) flags |= r.predicates[in.guard()];
  constexpr uint8_t kOfPredicate = 1;
  if (in.opcode() == kUniformBranch) {
    flags |= in.field(32, 2) == kOfPredicate ? r.uniform_predicates[in.field(24, 3)] : uint8_t{kFromUnknown};
  }
  if (in.is_conditional()) flags |= r.predicates[in.second_predicate()];
  return flags;
}

AddressBase resolve_base(const Instruction& in, const GlobalAccess& access, const Registers& r) {
  AddressBase base;
  Value low, high;
  const auto add_pair = [&](const Value& lo, const Value& hi) {
    low = mix(low, lo);
    high = mix(high, hi);
  };
  if (access.reg && *access.reg < Instruction::kZeroRegister - 1) {
    const auto half = [&](size_t n) { return r.seen(r.vector[n], in.guard(), in.guard_negated()); };
    add_pair(half(*access.reg), half(*access.reg + 1U));
  }
  if (access.uniform_reg && *access.uniform_reg < Instruction::kZeroUniform - 1)
    add_pair(r.uniform[*access.uniform_reg].any(), r.uniform[*access.uniform_reg + 1U].any());
  size_t num_addresses = 0;
  // A parameter in the low half alone is an index.
  for (size_t i = 0; i < low.num_words; ++i) {
    const uint16_t word = low.words[i];
    if ((word & Value::kAddressBit) != 0) {
      ++num_addresses;
      base.param_offsets.push_back(word & ~uint32_t{Value::kAddressBit});
    } else if (word % 2 == 0 && high.contains(static_cast<uint16_t>(word + 1))) {
      // A pointer is eight bytes: its halves are the two words of an aligned pair.
      base.param_offsets.push_back(uint32_t{word} * 4);
    }
  }
  base.is_param_block = num_addresses != 0 && num_addresses == base.param_offsets.size();
  base.may_be_other = base.param_offsets.empty() || ((low.flags | high.flags) & kOffsetOnly) != 0;
  return base;
}

}  // namespace megartp::sass
