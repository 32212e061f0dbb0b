#include "verify/sass/sass_decode.h"

#include <fmt/format.h>

#include "verify/sass/sass_opcodes.h"

namespace megartp::sass {
namespace {

constexpr size_t kNumOpcodes = 4096;
constexpr uint8_t kNoRow = 255;

// Row of kOpcodeRows for each opcode.
constexpr std::array<uint8_t, kNumOpcodes> make_row_of_opcode() {
  std::array<uint8_t, kNumOpcodes> rows{};
  for (uint8_t& r : rows) r = kNoRow;
  static_assert(std::size(kOpcodeRows) < kNoRow);
  for (size_t r = 0; r < std::size(kOpcodeRows); ++r)
    for (const uint16_t opcode : kOpcodeRows[r].opcodes)
      if (opcode != 0) rows[opcode] = static_cast<uint8_t>(r);
  return rows;
}
constexpr std::array<uint8_t, kNumOpcodes> kRowOfOpcode = make_row_of_opcode();

constexpr uint8_t kOrderConstant = 4;

bool is_control(OpKind kind) {
  switch (kind) {
    case OpKind::kBranch:
    case OpKind::kIndirectBranch:
    case OpKind::kCall:
    case OpKind::kReturn:
    case OpKind::kExit:
    case OpKind::kReconverge:
    case OpKind::kPushReconverge:
    case OpKind::kWarpSync: return true;
    default: return false;
  }
}

// CCTL's operations; those that are not named work on a whole cache.
enum CacheOperation : uint8_t {
  kPrefetchL1 = 0,
  kPrefetchL2 = 1,
  kWriteBack = 2,
  kInvalidate = 3,
  kInvalidateAll = 4,
  kReset = 5,
  kPrefetchL2Last = 9,
  kDiscardL2 = 10,
  kResetL2 = 11
};

std::string_view cache_operation_name(uint8_t operation) {
  switch (operation) {
    case kPrefetchL1: return "PF1";
    case kPrefetchL2: return "PF2";
    case kWriteBack: return "WB";
    case kInvalidate: return "IV";
    case kInvalidateAll: return "IVALL";
    case kReset: return "RS";
    case kPrefetchL2Last: return "PML2";
    case kDiscardL2: return "DML2";
    case kResetL2: return "RML2";
    default: return "ALL";
  }
}

std::optional<AccessKind> cache_access(uint8_t operation) {
  switch (operation) {
    case kPrefetchL1:
    case kPrefetchL2:
    case kPrefetchL2Last:
    case kResetL2: return AccessKind::kPrefetch;
    case kDiscardL2: return AccessKind::kWrite;  // what the line held is gone
    default: return std::nullopt;                // caches only
  }
}

std::string address_text(const GlobalAccess& access) {
  const auto& reg = access.reg;
  const auto& uniform = access.uniform_reg;
  std::string text;
  if (reg) text = *reg == Instruction::kZeroRegister ? "RZ" : fmt::format("R{}.64", *reg);
  if (uniform) text += fmt::format("{}UR{}", text.empty() ? "" : "+", *uniform);
  if (text.empty()) return text;
  return access.policy_reg ? fmt::format("desc[UR{}][{}]", *access.policy_reg, text) : fmt::format("[{}]", text);
}

}  // namespace

std::string_view to_string(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead: return "read";
    case AccessKind::kWrite: return "write";
    case AccessKind::kReadWrite: return "read-write";
    case AccessKind::kPrefetch: return "prefetch";
  }
  return "?";
}

Instruction::Instruction(uint64_t lo, uint64_t hi) : lo_(lo), hi_(hi) {
  if (const uint8_t row = kRowOfOpcode[opcode()]; row != kNoRow) {
    name_ = kOpcodeRows[row].name;
    kind_ = kOpcodeRows[row].kind;
  }
}

uint8_t Instruction::field(uint32_t first, uint32_t count) const {
  const uint64_t value = first >= 64 ? hi_ >> (first - 64) : first == 0 ? lo_ : (lo_ >> first) | (hi_ << (64 - first));
  return static_cast<uint8_t>(value & ((uint64_t{1} << count) - 1));
}

bool Instruction::is_conditional() const {
  if (is_guarded()) return true;
  if (!is_control(kind_)) return false;
  // BRA.U and BRA.DIV test a uniform predicate, or whether the warp has diverged.
  return opcode() == kUniformBranch || second_predicate() != kAlways || second_predicate_negated();
}

bool Instruction::is_indirect() const {
  switch (opcode()) {
    case 0x343:  // CALL.ABS R
    case 0x344:  // CALL.REL R
    case 0x943:  // CALL.ABS: an absolute address, which the loader fills in
    case 0xb43: return true;
    default: return kind_ == OpKind::kIndirectBranch || kind_ == OpKind::kReturn;
  }
}

std::optional<int64_t> Instruction::target(int64_t offset) const {
  const int64_t next = offset + 16;
  if (kind_ == OpKind::kPushReconverge) return next + static_cast<int32_t>(immediate());
  const bool is_collective = kind_ == OpKind::kWarpSync && field(86, 1) != 0;
  if (is_indirect() || !(kind_ == OpKind::kBranch || kind_ == OpKind::kCall || is_collective)) return std::nullopt;
  // In units of four bytes: the low 8 bits in 16-23, the next 48 from bit 34 on.
  const uint64_t raw = uint64_t{field(16, 8)} | (lo_ >> 34 << 8) | ((hi_ & 0x3ffffU) << 38);
  const int64_t units = static_cast<int64_t>(raw << 8) >> 8;
  return next + units * 4;
}

uint32_t Instruction::num_data_registers() const {
  switch (field(73, 3)) {
    case 5: return 2;
    case 6: return 4;
    default: return 1;
  }
}

bool Instruction::barrier_waits() const {
  if (kind_ == OpKind::kClusterBarrier) return name_ == "UCGABAR_WAIT";
  constexpr uint8_t kArrive = 1;
  return field(77, 2) != kArrive;
}

std::optional<uint8_t> Instruction::barrier_id() const {
  constexpr uint16_t kImmediateId[] = {0xb1d, 0x91d};
  for (const uint16_t op : kImmediateId)
    if (opcode() == op) return field(54, 4);
  return std::nullopt;
}

bool Instruction::is_mbarrier_arrival() const { return opcode() == 0x9a7 || name_ == "ARRIVES"; }

std::optional<GlobalAccess> Instruction::global_access() const {
  GlobalAccess access;
  const bool has_uniform = field(91, 1) != 0;
  const uint8_t uniform_low = field(32, 6);
  const uint8_t uniform_high = field(64, 6);
  const auto with = [&](AccessKind kind, std::optional<uint8_t> reg, std::optional<uint8_t> uniform) {
    access.kind = kind;
    access.reg = reg;
    access.uniform_reg = uniform;
    return access;
  };
  // A uniform register is a policy descriptor where a bit says so, else part of the address.
  const auto uniform_if = [&](uint8_t u, uint32_t policy_bit) -> std::optional<uint8_t> {
    if (!has_uniform) return std::nullopt;
    if (field(policy_bit, 1) == 0) return u;
    access.policy_reg = u;
    return std::nullopt;
  };
  constexpr uint32_t kPolicyBit = 76;
  constexpr uint32_t kAtomicPolicyBit = 71;
  access.is_generic =
      kind_ == OpKind::kGenericLoad || kind_ == OpKind::kGenericStore || kind_ == OpKind::kGenericAtomic;
  switch (kind_) {
    case OpKind::kGlobalLoad:
    case OpKind::kGenericLoad:
      if (name_ == "LDGMC")
        return with(AccessKind::kRead, src_a(), has_uniform ? std::optional(uniform_high) : std::nullopt);
      access.is_nc = field(77, 4) == kOrderConstant;
      return with(AccessKind::kRead, src_a(), uniform_if(uniform_low, kPolicyBit));
    case OpKind::kGlobalStore:
    case OpKind::kGenericStore: return with(AccessKind::kWrite, src_a(), uniform_if(uniform_high, kPolicyBit));
    case OpKind::kGlobalAtomic:
    case OpKind::kGenericAtomic:
      return with(AccessKind::kReadWrite, src_a(), uniform_if(uniform_high, kAtomicPolicyBit));
    case OpKind::kAsyncCopy: return with(AccessKind::kRead, src_a(), uniform_if(uniform_high, kPolicyBit));
    case OpKind::kCacheControl:
      if (const auto kind = cache_access(field(87, 4))) return with(*kind, src_a(), std::nullopt);
      return std::nullopt;
    case OpKind::kTexture:
    case OpKind::kSurfaceLoad: return with(AccessKind::kRead, std::nullopt, std::nullopt);
    case OpKind::kSurfaceStore: return with(AccessKind::kReadWrite, std::nullopt, std::nullopt);
    default: break;
  }
  access.is_async = true;
  const uint8_t uniform_a = field(24, 6);
  const bool to_shared = field(73, 1) != 0;
  const bool from_shared = field(74, 1) != 0;
  switch (kind_) {
    case OpKind::kBulkCopy:
      if (to_shared && from_shared) return std::nullopt;  // between CTAs of a cluster
      if (to_shared) return with(AccessKind::kRead, std::nullopt, uniform_a);
      return with(AccessKind::kWrite, std::nullopt, uniform_low);
    case OpKind::kBulkReduce:
      if (to_shared) return std::nullopt;
      return with(AccessKind::kReadWrite, std::nullopt, uniform_low);
    case OpKind::kBulkPrefetch: return with(AccessKind::kPrefetch, std::nullopt, uniform_a);
    default: break;
  }
  access.is_descriptor = true;
  switch (kind_) {
    case OpKind::kTensorLoad: return with(AccessKind::kRead, std::nullopt, uniform_a);
    case OpKind::kTensorStore: return with(AccessKind::kWrite, std::nullopt, uniform_a);
    case OpKind::kTensorReduce: return with(AccessKind::kReadWrite, std::nullopt, uniform_a);
    case OpKind::kTensorPrefetch: return with(AccessKind::kPrefetch, std::nullopt, uniform_a);
    case OpKind::kTensorControl:
      // .PF reads the descriptor into its cache; .IV only forgets it.
      if (field(82, 2) != 1) return std::nullopt;
      access.is_descriptor = false;
      return with(AccessKind::kPrefetch, std::nullopt, uniform_a);
    default: return std::nullopt;
  }
}

std::string Instruction::text() const {
  std::string out;
  if (is_guarded())
    out = fmt::format("@{}{} ", guard_negated() ? "!" : "", guard() == kAlways ? "PT" : fmt::format("P{}", guard()));
  if (kind_ == OpKind::kUnknown) return out + fmt::format("unknown opcode {:#05x}", opcode());
  out += name_;
  const auto access = global_access();
  if (access && access->is_nc) out += ".CONSTANT";
  if (kind_ == OpKind::kCacheControl) out += fmt::format(".{}", cache_operation_name(field(87, 4)));
  if (kind_ == OpKind::kTensorControl) out += access ? ".PF" : "";
  if (kind_ == OpKind::kProxyFence) out += fences_global_only() ? ".VIEW.ASYNC.G" : ".VIEW.ASYNC.S";
  if (kind_ == OpKind::kBulkCopy)
    out += fmt::format(".{}.{}", field(73, 1) != 0 ? "S" : "G", field(74, 1) != 0 ? "S" : "G");
  if (access) {
    const std::string address = address_text(*access);
    const bool is_load = kind_ == OpKind::kGlobalLoad || kind_ == OpKind::kGenericLoad;
    if (is_load) out += dst() == kZeroRegister ? " RZ," : fmt::format(" R{},", dst());
    if (!address.empty()) out += " " + address;
  }
  return out;
}

}  // namespace megartp::sass
