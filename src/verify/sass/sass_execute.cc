// The effect of one instruction on the values of the trace. What is not modelled gives values from an unknown source.
#include <algorithm>
#include <optional>
#include <vector>

#include "verify/sass/sass_values.h"

namespace megartp::sass {
namespace {

// Bits 0-8 of the opcode name the operation, bits 9-11 where the operands come from.
enum Operation : uint16_t {
  kMov = 0x002,
  kP2r = 0x003,
  kR2p = 0x004,
  kSel = 0x007,
  kFset = 0x00a,
  kFsetp = 0x00b,
  kIsetp = 0x00c,
  kIadd3 = 0x010,
  kLea = 0x011,
  kLop3 = 0x012,
  kIabs = 0x013,
  kPrmt = 0x016,
  kImnmx = 0x017,
  kShf = 0x019,
  kSgxt = 0x01a,
  kPlop3 = 0x01c,
  kPlop3b = 0x01d,
  kPlop3c = 0x01e,
  kPlop3d = 0x01f,
  kImad = 0x024,
  kImadWide = 0x025,
  kImadHi = 0x027,
  kDsetp = 0x02a,
  kHsetp2 = 0x034,
  kViadd = 0x036,
  kVimnmx = 0x048,
  kUmov = 0x082,
  kUsel = 0x087,
  kUisetp = 0x08c,
  kUiadd3 = 0x090,
  kUlea = 0x091,
  kUlop3 = 0x092,
  kUprmt = 0x096,
  kUiadd64 = 0x097,
  kUshf = 0x099,
  kUsgxt = 0x09a,
  kUplop3 = 0x09c,
  kUplop3b = 0x09d,
  kUplop3c = 0x09e,
  kUplop3d = 0x09f,
  kUimad = 0x0a4,
  kUimadWide = 0x0a5,
};

constexpr uint16_t kS2r = 0x919;
constexpr uint16_t kS2ur = 0x9c3;
constexpr uint16_t kCs2r = 0x805;
constexpr uint16_t kR2ur = 0x2ca;
constexpr uint16_t kLdc = 0xb82;
constexpr uint16_t kUldc = 0xab9;
constexpr uint16_t kUldcIndexed = 0xabb;
constexpr uint16_t kElect = 0x82f;
constexpr uint16_t kVote = 0x806;

// Special registers (bits 72-79 of S2R).
enum SpecialRegister : uint8_t {
  kLaneId = 0x00,
  kThreadX = 0x21,
  kThreadY = 0x22,
  kThreadZ = 0x23,
  kBlockX = 0x25,
  kBlockY = 0x26,
  kBlockZ = 0x27,
  kZero = 0xff,
};

class Executor {
 public:
  Executor(const Instruction& in, const ParamBlock& params, Registers& r)
      : in_(in),
        params_(params),
        r_(r),
        operation_(in.opcode() & 0x1ffU),
        form_(in.opcode() >> 9U),
        is_uniform_(operation_ >= kUmov && operation_ <= 0x0bf) {}

  void run() {
    run_instruction();
    for (uint8_t p = 0; p < Instruction::kAlways; ++p) {
      if ((changed_predicates_ >> p & 1U) != 0) r_.forget_predicate(p);
      if ((changed_uniform_predicates_ >> p & 1U) != 0) r_.forget_predicate(kFirstUniformPredicate + p);
    }
    note_copied_predicate();
  }

 private:
  void run_instruction() {
    switch (in_.kind()) {
      case OpKind::kAlu: return run_alu();
      case OpKind::kConstantLoad: return load_constant();
      case OpKind::kLocal:
        if (in_.name() == "LDL") write(in_.dst(), in_.num_data_registers(), loaded());
        return;
      case OpKind::kSharedLoad: return write(in_.dst(), in_.name() == "LDSM" ? 4 : in_.num_data_registers(), loaded());
      case OpKind::kGlobalLoad:
      case OpKind::kGenericLoad:
      case OpKind::kGlobalAtomic:
      case OpKind::kGenericAtomic:
        if (in_.name() != "REDG") write(in_.dst(), in_.num_data_registers(), loaded());
        // The field stands in these only; a zero in it elsewhere is not P0.
        return is_one_of({"LDG", "ATOM", "ATOMG"}) ? set_predicate(81) : void();
      case OpKind::kSharedStore:
        if (in_.name() != "ATOMS") return;
        write(in_.dst(), in_.num_data_registers(), loaded());
        return forget_predicates(false);  // .CAST.SPIN writes one
      case OpKind::kTexture:
      case OpKind::kSurfaceLoad:
      case OpKind::kSurfaceStore:
        write(in_.dst(), 4, loaded());
        write(in_.src_c(), 4, loaded());
        return forget_predicates(false);
      case OpKind::kMbarrier:
        write_uniform(in_.field(16, 6), 2, loaded());
        if (in_.opcode() == 0x9a7) write(in_.dst(), 2, loaded());
        return in_.is_mbarrier_wait() ? set_predicate(81) : void();
      case OpKind::kCall:
        // A function of the section is followed, and what it leaves in registers arrives with its return.
        return in_.is_indirect() ? forget_all() : void();
      default: return;
    }
  }

  static Value loaded() {
    Value v;
    v.flags = kFromMemory;
    return v;
  }
  static Value unknown() {
    Value v;
    v.flags = kFromUnknown;
    return v;
  }
  static Value special(uint8_t which) {
    Value v;
    switch (which) {
      case kLaneId:
      case kThreadX:
      case kThreadY:
      case kThreadZ: v.flags = kFromThread; break;
      case kBlockX:
      case kBlockY:
      case kBlockZ: v.flags = kFromBlock; break;
      default: v.flags = kFromUnknown; break;
    }
    return v;
  }

  bool is_one_of(std::initializer_list<std::string_view> names) const {
    return std::find(names.begin(), names.end(), in_.name()) != names.end();
  }

  // --- operands ------------------------------------------------------------------------------------------------------

  Value vector_reg(uint8_t n) const {
    if (n == Instruction::kZeroRegister) return Value::literal(0);
    return r_.seen(r_.vector[n], guard(), in_.guard_negated());
  }
  Value uniform_reg(uint8_t n) const {
    n &= 63U;
    if (n == Instruction::kZeroUniform) return Value::literal(0);
    return r_.seen(r_.uniform[n], guard(), in_.guard_negated());
  }
  Value any_reg(uint8_t n) const { return is_uniform_ ? uniform_reg(n) : vector_reg(n); }
  // `high`: the upper half of a 64-bit operand.
  Value any_reg(uint8_t n, bool high) const {
    const uint8_t zero = is_uniform_ ? Instruction::kZeroUniform : Instruction::kZeroRegister;
    const uint8_t number = is_uniform_ ? n & 63U : n;
    return number == zero ? Value::literal(0) : any_reg(static_cast<uint8_t>(number + (high ? 1 : 0)));
  }
  Value constant(bool high) const {
    return params_.constant(in_.constant_bank(), in_.constant_offset() + (high ? 4U : 0U));
  }

  Value a(bool high = false) const { return any_reg(in_.src_a(), high); }
  Value b(bool high = false) const {
    switch (form_) {
      case 1: return any_reg(in_.src_b(), high);
      case 4: return Value::literal(high ? 0 : in_.immediate());
      case 5: return constant(high);
      case 6: return high ? uniform_reg(static_cast<uint8_t>(in_.src_b() + 1)) : uniform_reg(in_.src_b());
      default: return any_reg(in_.src_c(), high);
    }
  }
  Value c(bool high = false) const {
    switch (form_) {
      case 2: return Value::literal(high ? 0 : in_.immediate());
      case 3: return constant(high);
      case 7: return uniform_pair(in_.src_b(), high);
      default: return any_reg(in_.src_c(), high);
    }
  }
  Value uniform_pair(uint8_t n, bool high) const {
    const bool is_zero = (n & 63U) == Instruction::kZeroUniform;
    return is_zero ? Value::literal(0) : uniform_reg(static_cast<uint8_t>(n + (high ? 1 : 0)));
  }
  uint8_t predicate(uint32_t bit) const {
    return (is_uniform_ ? r_.uniform_predicates : r_.predicates)[in_.field(bit, 3)];
  }

  // --- results -------------------------------------------------------------------------------------------------------

  bool is_guarded() const { return in_.is_guarded(); }
  uint8_t guard() const {
    const bool is_of_uniform_file = is_uniform_ && in_.guard() != Instruction::kAlways;
    return static_cast<uint8_t>(in_.guard() + (is_of_uniform_file ? kFirstUniformPredicate : 0));
  }
  uint8_t guard_flags() const {
    if (!is_guarded()) return 0;
    return is_uniform_ ? r_.uniform_predicates[in_.guard()] : r_.predicates[in_.guard()];
  }
  // A guarded write may leave the old value. What decides whether it does is no part of a pointer.
  void store(Register& to, Value v) const {
    v.flags |= of_choice(v, guard_flags());
    if (!is_guarded())
      to = Register(v);
    else
      to.write_if(guard(), in_.guard_negated(), v);
  }
  static uint8_t of_choice(const Value& v, uint8_t flags) {
    return v.num_words == 0 ? flags : static_cast<uint8_t>(flags & ~(kFromMemory | kFromUnknown | kTooMany));
  }
  void write(uint8_t first, uint32_t count, const Value& v) {
    for (uint32_t n = first; n < first + count && n < Instruction::kZeroRegister; ++n) store(r_.vector[n], v);
  }
  void write_uniform(uint8_t first, uint32_t count, const Value& v) {
    for (uint32_t n = first & 63U; n < (first & 63U) + count && n < Instruction::kZeroUniform; ++n)
      store(r_.uniform[n], v);
  }
  void write_any(const Value& low, std::optional<Value> high = std::nullopt) {
    if (is_uniform_) {
      write_uniform(in_.field(16, 6), 1, low);
      if (high) write_uniform(static_cast<uint8_t>(in_.field(16, 6) + 1), 1, *high);
    } else {
      write(in_.dst(), 1, low);
      if (high) write(static_cast<uint8_t>(in_.dst() + 1), in_.dst() == Instruction::kZeroRegister ? 0 : 1, *high);
    }
  }
  static uint8_t as_flags(const Value& v) {
    return static_cast<uint8_t>(v.flags | (v.num_words != 0 ? kFromScalar : 0));
  }
  void set_predicate(uint32_t bit, uint8_t flags = kFromUnknown) {
    const uint8_t p = in_.field(bit, 3);
    if (p == Instruction::kAlways) return;
    flags |= guard_flags();
    uint8_t& to = (is_uniform_ ? r_.uniform_predicates : r_.predicates)[p];
    to = is_guarded() ? static_cast<uint8_t>(to | flags) : flags;
    changed(p, is_uniform_);
  }
  void changed(size_t predicate, bool is_uniform) {
    (is_uniform ? changed_uniform_predicates_ : changed_predicates_) |= static_cast<uint8_t>(1U << predicate);
  }
  void set_predicates(uint8_t flags) {
    set_predicate(81, flags);
    set_predicate(84, flags);
  }
  void forget_all() {
    for (Register& reg : r_.vector) reg = Register(join(reg.any(), unknown()));
    for (Register& reg : r_.uniform) reg = Register(join(reg.any(), unknown()));
    forget_predicates(true);
    forget_predicates(false);
  }

  // The last operand of PLOP3 may be a uniform predicate.
  bool reads_uniform_predicate() const {
    constexpr uint32_t kIsUniform = 67;
    return !is_uniform_ && in_.field(kIsUniform, 1) != 0;
  }
  // PLOP3.LUT P1, PT, PT, PT, UP0, 0x80, 0x0 copies UP0: the conjunction of true, true and it.
  void note_copied_predicate() {
    constexpr uint16_t kPlop3Opcode = 0x81c;
    const uint8_t to = in_.field(81, 3);
    if (in_.opcode() != kPlop3Opcode || is_guarded() || !reads_uniform_predicate() || to == Instruction::kAlways)
      return;
    const uint8_t from = in_.field(68, 3);
    const bool is_true_and_true = in_.field(77, 3) == Instruction::kAlways && in_.field(87, 3) == Instruction::kAlways;
    const bool is_negated = in_.field(71, 1) != 0 || in_.field(80, 1) != 0 || in_.field(90, 1) != 0;
    const bool is_conjunction = in_.field(64, 3) == 0 && in_.field(72, 5) == 0x10;
    if (!is_true_and_true || is_negated || !is_conjunction || from == Instruction::kAlways) return;
    r_.copy_of[to] = static_cast<uint8_t>(kFirstUniformPredicate + from);
  }
  void forget_predicates(bool is_uniform) {
    for (size_t p = 0; p < Instruction::kAlways; ++p) {
      (is_uniform ? r_.uniform_predicates : r_.predicates)[p] |= kFromUnknown;
      changed(p, is_uniform);
    }
  }

  // --- instructions --------------------------------------------------------------------------------------------------

  void load_constant() {
    const uint32_t count = in_.num_data_registers();
    const bool is_vector = in_.name() == "LDC";
    const Value index = constant_index(is_vector);
    for (uint32_t i = 0; i < count; ++i) {
      Value v = loaded();
      for (size_t k = 0; k < index.num_constants; ++k) {
        const Value word = params_.constant(in_.constant_bank(), in_.constant_offset() + index.constants[k] + 4 * i);
        v = k == 0 ? word : join(v, word);
      }
      v.flags |= of_choice(v, index.flags);
      if (is_vector && in_.dst() + i < Instruction::kZeroRegister) store(r_.vector[in_.dst() + i], v);
      if (!is_vector && in_.field(16, 6) + i < Instruction::kZeroUniform) store(r_.uniform[in_.field(16, 6) + i], v);
    }
  }

  // What is added to the offset: a pointer that is chosen from several is one load with the place in a register.
  // Without constants where it is not known.
  Value constant_index(bool is_vector) const {
    constexpr uint32_t kMaxOffset = 0x7fff;  // negative beyond
    if (in_.constant_offset() > kMaxOffset) return {};
    if (!is_vector) {
      if (in_.opcode() == kUldc && in_.field(91, 1) == 0) return Value::literal(0);
      return in_.opcode() == kUldcIndexed && in_.field(91, 1) != 0 ? uniform_reg(in_.src_a()) : Value{};
    }
    const bool is_plain_sum = in_.opcode() == kLdc && in_.field(78, 2) == 0;  // no .IL, .IS, .ISL
    return is_plain_sum ? vector_reg(in_.src_a()) : Value{};
  }

  // A sum of an address inside the parameter block and known numbers stays one.
  Value keep_address(const Value& sum) const {
    const auto holds_address = [](const Value& v) {
      return v.num_words != 0 && (v.words[v.num_words - 1U] & Value::kAddressBit) != 0;
    };
    if (!holds_address(sum)) return sum;
    // Bits 63, 72 and 75 negate, 74 adds a carry.
    bool is_known = in_.field(63, 1) == 0 && in_.field(72, 1) == 0 && in_.field(74, 2) == 0;
    uint32_t num_addresses = 0;
    std::vector<uint32_t> offsets{0};
    for (const Value& v : {a(), b(), c()}) {
      if (holds_address(v)) {
        ++num_addresses;
        continue;
      }
      std::vector<uint32_t> sums;
      for (size_t k = 0; k < v.num_constants; ++k)
        for (const uint32_t o : offsets) sums.push_back(o + v.constants[k]);
      offsets = std::move(sums);
    }
    is_known &= num_addresses == 1 && !offsets.empty();
    Value out;
    out.flags = sum.flags;
    if (!is_known) out.flags |= kFromUnknown;
    for (size_t i = 0; i < sum.num_words; ++i) {
      const uint16_t word = sum.words[i];
      if ((word & Value::kAddressBit) == 0) {
        out.insert(word);
        continue;
      }
      if (!is_known) continue;
      for (const uint32_t o : offsets) out.insert(static_cast<uint16_t>(Value::kAddressBit | ((word + o) & 0x7fffU)));
    }
    return out;
  }

  void run_alu() {
    switch (in_.opcode()) {
      case kS2r: return write(in_.dst(), 1, special(in_.field(72, 8)));
      case kS2ur: return write_uniform(in_.field(16, 6), 1, special(in_.field(72, 8)));
      case kCs2r: return write(in_.dst(), 2, in_.field(72, 8) == kZero ? Value::literal(0) : unknown());
      case kR2ur:
        write_uniform(in_.field(16, 6), 1, vector_reg(in_.src_a()));
        return set_predicate(81, as_flags(vector_reg(in_.src_a())));
      case kElect: {
        write_uniform(in_.field(16, 6), 1, unknown());
        return set_predicate(81, kFromThread);
      }
      case kVote: {
        Value v;
        v.flags = predicate(87);
        write(in_.dst(), 1, v);
        return set_predicate(81, v.flags);
      }
      default: break;
    }
    if (form_ == 0 || !run_modelled()) run_other();
  }

  // False for what is not modelled.
  bool run_modelled() {
    switch (operation_) {
      case kMov:
      case kUmov: write_any(b()); return true;
      case kSel:
      case kUsel: {
        Value v = join(a(), b());
        v.flags |= of_choice(v, predicate(87));
        write_any(v);
        return true;
      }
      case kIsetp:
      case kUisetp: {
        uint8_t flags = as_flags(a()) | as_flags(b()) | predicate(87);
        flags |= predicate(68);  // of .EX: the comparison of the lower halves
        set_predicates(flags);
        return true;
      }
      case kPlop3:
      case kPlop3b:
      case kPlop3c:
      case kPlop3d:
      case kUplop3:
      case kUplop3b:
      case kUplop3c:
      case kUplop3d:
        set_predicates(predicate(87) | predicate(77) |
                       (reads_uniform_predicate() ? r_.uniform_predicates[in_.field(68, 3)] : predicate(68)));
        return true;
      case kIadd3:
      case kUiadd3:
        write_any(keep_address(mix(mix(a(), b()), c())));
        set_predicates(as_flags(a()) | as_flags(b()) | as_flags(c()));
        return true;
      case kUiadd64: write_any(mix(mix(a(), b()), c()), mix(mix(a(true), b(true)), c(true))); return true;
      case kImad:
      case kUimad:
      case kImadHi:
      case kLea:
      case kUlea:
      case kLop3:
      case kUlop3: set_predicate(81, as_flags(a()) | as_flags(b()) | as_flags(c())); [[fallthrough]];
      case kShf:
      case kUshf:
      case kPrmt:
      case kUprmt:
        // IMAD.U32 R4, RZ, RZ, UR4: both of what UR4 may be.
        if (is_copy() && form_ == 7 && !is_guarded() && in_.dst() != Instruction::kZeroRegister &&
            (in_.src_b() & 63U) != Instruction::kZeroUniform) {
          r_.vector[in_.dst()] = r_.uniform[in_.src_b() & 63U];
          return true;
        }
        write_any(is_copy() ? c() : strip_addresses(mix(mix(a(), b()), c())));
        return true;
      case kImadWide:
      case kUimadWide: {
        const Value product = mix(a(), b());
        set_predicate(81, as_flags(product) | as_flags(c()) | as_flags(c(true)));
        write_any(strip_addresses(mix(product, c())), strip_addresses(mix(product, c(true))));
        return true;
      }
      case kViadd:
      case kImnmx:
      case kVimnmx:
      case kSgxt:
      case kUsgxt: write_any(strip_addresses(mix(a(), b()))); return true;
      case kIabs: write_any(b()); return true;
      default: return false;
    }
  }

  // IMAD.MOV and LEA copy or scale; an address in the parameter block survives only as it is.
  bool is_copy() const {
    constexpr uint32_t kCarryAndNegation = 74;
    return operation_ == kImad && in_.src_a() == Instruction::kZeroRegister && in_.field(kCarryAndNegation, 2) == 0;
  }
  Value strip_addresses(Value v) const {
    if (v.num_words == 0 || (v.words[v.num_words - 1U] & Value::kAddressBit) == 0) return v;
    Value out;
    out.flags = v.flags | kFromUnknown;
    for (size_t i = 0; i < v.num_words; ++i)
      if ((v.words[i] & Value::kAddressBit) == 0) out.insert(v.words[i]);
    return out;
  }

  // Registers that an instruction beyond the model writes.
  void run_other() {
    const std::string_view name = in_.name();
    if (is_one_of({"FSETP", "DSETP", "HSETP2", "FCHK", "CSMTEST"})) return set_predicates(kFromUnknown);
    if (name == "R2P") {
      return forget_predicates(false);
    }
    if (name == "UR2UP") {
      return forget_predicates(true);
    }
    if (is_one_of({"NOP", "DEPBAR", "YIELD", "NANOSLEEP", "BREAK", "ERRBAR", "CGAERRBAR", "UTMACMDFLUSH", "LDGDEPBAR",
                   "BPT", "WARPGROUP", "WARPGROUPSET", "USETMAXREG", "ENDCOLLECTIVE", "PMTRIG", "CCTLL", "CCTLT",
                   "RPCMOV"}))
      return;
    if (is_uniform_ || is_one_of({"VOTEU", "REDUX", "ULEPC", "GETLMEMBASE"})) {
      write_uniform(in_.field(16, 6), is_uniform_ ? 1 : 2, unknown());
      if (name != "REDUX") set_predicate(81);
      return;
    }
    if (name == "B2R") set_predicate(81);
    if (is_one_of({"SHFL", "MATCH"})) {
      // Another lane's value: a pointer stays unknown, a thread index remains one.
      Value v;
      v.flags = as_flags(vector_reg(in_.src_a()));
      if (vector_reg(in_.src_a()).num_words != 0) v.flags |= kFromUnknown;
      write(in_.dst(), 1, v);
      return set_predicate(81);
    }
    // HFMA2 R0, -RZ, RZ, 0, 0 puts a number into a register.
    const bool is_number = name == "HFMA2" && form_ == 2 && in_.src_a() == Instruction::kZeroRegister &&
                           in_.src_c() == Instruction::kZeroRegister;
    if (is_number) return write(in_.dst(), 1, Value::literal(in_.immediate()));
    uint32_t count = 1;
    if (is_one_of({"HGMMA", "QGMMA", "IGMMA", "BGMMA"})) count = 128;
    if (is_one_of({"HMMA", "IMMA", "BMMA", "DMMA"})) count = 4;
    if (is_one_of({"DADD", "DFMA", "DMUL", "CLMAD"})) count = 2;
    constexpr uint16_t kFirstWideConversion = 0x110;
    if (is_one_of({"F2F", "F2I", "I2F", "FRND"}) && operation_ >= kFirstWideConversion) count = 2;
    if (is_one_of({"LEPC"})) count = 2;
    write(in_.dst(), count, unknown());
  }

  const Instruction& in_;
  const ParamBlock& params_;
  Registers& r_;
  uint16_t operation_;
  uint16_t form_;
  bool is_uniform_;
  uint8_t changed_predicates_ = 0, changed_uniform_predicates_ = 0;  // take effect behind the instruction
};

}  // namespace

void execute(const Instruction& in, const ParamBlock& params, Registers& r) { Executor(in, params, r).run(); }

}  // namespace megartp::sass
