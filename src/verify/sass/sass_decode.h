// Decoder of sm_90 machine code, as far as control flow and memory go.
//
// An instruction has 128 bits: the opcode stands in bits 0-11, the guard predicate in 12-14 (7: always) with its
// negation in 15. Every opcode of sm_90 is known by name and kind; an opcode that is not is kUnknown and must be taken
// to touch memory. The scan reads nothing else from an instruction than what this header offers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megartp::sass {

enum class OpKind : uint8_t {
  kUnknown,       // no opcode of sm_90
  kGraphics,      // one that no compute kernel holds
  kAlu,           // registers only
  kConstantLoad,  // LDC, ULDC
  kLocal,         // thread-private memory: LDL, STL
  kSharedLoad,
  kSharedStore,   // STS, STSM, ATOMS
  kClusterStore,  // STAS, REDAS: shared memory of another CTA
  kGlobalLoad,
  kGenericLoad,
  kGlobalStore,
  kGenericStore,
  kGlobalAtomic,  // ATOMG, REDG
  kGenericAtomic,
  kAsyncCopy,  // LDGSTS: global to shared, through the generic proxy
  kBulkCopy,   // UBLKCP and its kin: the copy engine, that is the async proxy
  kBulkReduce,
  kBulkPrefetch,
  kTensorLoad,
  kTensorStore,
  kTensorReduce,
  kTensorPrefetch,
  kTensorControl,  // UTMACCTL: descriptors in the cache
  kCacheControl,   // CCTL: prefetch, invalidate, discard
  kTexture,
  kSurfaceLoad,
  kSurfaceStore,
  kFence,       // MEMBAR
  kProxyFence,  // FENCE.VIEW.ASYNC
  kMbarrier,    // SYNCS, ARRIVES
  kBarrier,     // BAR
  kClusterBarrier,
  kGridWait,     // ACQBULK: griddepcontrol.wait
  kGridTrigger,  // PREEXIT: griddepcontrol.launch_dependents
  kWarpSync,
  kPushReconverge,  // BSSY
  kReconverge,      // BSYNC
  kBranch,
  kIndirectBranch,  // BRX, JMX, and jumps to absolute addresses
  kCall,
  kReturn,
  kExit,
};

enum class AccessKind : uint8_t { kRead, kWrite, kReadWrite, kPrefetch };
std::string_view to_string(AccessKind kind);

// How a memory instruction names the global memory that it touches.
struct GlobalAccess {
  AccessKind kind = AccessKind::kRead;
  bool is_nc = false;          // LDG.CONSTANT: the read-only path, which ptxas may move over barriers and over the wait
  bool is_generic = false;     // may be shared or local memory instead
  bool is_async = false;       // done by the copy engine
  bool is_descriptor = false;  // the address is that of a tensor descriptor, not of the data
  // The address is the sum of a register pair and a uniform register pair, where they are there.
  std::optional<uint8_t> reg;
  std::optional<uint8_t> uniform_reg;
  std::optional<uint8_t> policy_reg;  // desc[UR4]: a descriptor of the access, no part of the address
};

class Instruction {
 public:
  Instruction() = default;
  Instruction(uint64_t lo, uint64_t hi);

  uint16_t opcode() const { return static_cast<uint16_t>(lo_ & 0xfffU); }
  OpKind kind() const { return kind_; }
  std::string_view name() const { return name_; }  // "" when unknown

  uint8_t guard() const { return static_cast<uint8_t>(lo_ >> 12 & 7U); }
  bool guard_negated() const { return (lo_ >> 15 & 1U) != 0; }
  // Has a guard that may be false.
  bool is_guarded() const { return guard() != kAlways || guard_negated(); }
  // The second predicate of a control instruction (BRA P1): 7 and not negated where there is none.
  uint8_t second_predicate() const { return field(87, 3); }
  bool second_predicate_negated() const { return field(90, 1) != 0; }
  // A control instruction that may not do what it says: guarded, or by its second predicate, or of a warp's vote.
  bool is_conditional() const;

  // Bits `first` to `first` + `count` - 1 (count at most 8).
  uint8_t field(uint32_t first, uint32_t count) const;
  uint8_t dst() const { return field(16, 8); }
  uint8_t src_a() const { return field(24, 8); }
  uint8_t src_b() const { return field(32, 8); }
  uint8_t src_c() const { return field(64, 8); }
  uint32_t immediate() const { return static_cast<uint32_t>(lo_ >> 32); }
  // Constant bank operand; the offset is in bytes.
  uint32_t constant_bank() const { return field(54, 5); }
  uint32_t constant_offset() const { return static_cast<uint32_t>(lo_ >> 38 & 0xffffU); }
  // Registers of 32 bits that a memory instruction moves.
  uint32_t num_data_registers() const;

  // Where a direct branch, call or BSSY at `offset` points; may lie anywhere.
  std::optional<int64_t> target(int64_t offset) const;
  // A call or branch whose target is in a register.
  bool is_indirect() const;

  std::optional<GlobalAccess> global_access() const;
  // FENCE.VIEW.ASYNC.G orders global memory only; the plain one shared memory, and global too where a MEMBAR.GPU stands
  // before it.
  bool fences_global_only() const { return field(72, 1) != 0; }
  bool is_gpu_membar() const { return kind_ == OpKind::kFence && field(76, 3) >= 2; }
  // BPT.TRAP ends the kernel.
  bool is_trap() const { return opcode() == 0x95c && field(84, 3) == 3; }
  // BAR.ARV does not wait. The number of a barrier, if it is not in a register.
  bool barrier_waits() const;
  std::optional<uint8_t> barrier_id() const;
  // SYNCS.PHASECHK: waits for an mbarrier. The others arrive at one, or initialise it.
  bool is_mbarrier_wait() const { return opcode() == 0x5a7; }
  bool is_mbarrier_arrival() const;

  // "@!P0 LDG.CONSTANT R2, [R4.64]": name, the modifiers that matter here, address.
  std::string text() const;

  static constexpr uint8_t kAlways = 7;
  static constexpr uint8_t kZeroRegister = 255;
  static constexpr uint8_t kZeroUniform = 63;

 private:
  uint64_t lo_ = 0;
  uint64_t hi_ = 0;
  std::string_view name_;
  OpKind kind_ = OpKind::kUnknown;
};

}  // namespace megartp::sass
