// OpFamily: one folder under src/ops implements this and nothing else needs to be touched to add an op.
//
// Lowering asks a family for Stages. A stage is one kernel's worth of tiles: it knows its opcode, its operand row, and
// for every tile the payload and the exact boxes that the tile reads and writes. These boxes are the only source of
// dependencies.
//
//   finalizer = kTasks:  B0 -> stage "B0.gemm" (84 tiles) + stage "B0.finalize" (16 tiles)
//   finalizer = kFused:  B0 -> stage "B0" (84 tiles in one join group, 16 final tiles that the last arriver runs)
//
// In a fused stage the final tiles, not the tiles, are what other ops wait for: a group's last arriver sends one signal
// unit per final tile.
//
// The clipping contract, on which plan templates rest (docs/plan-templates.md): with smaller dims a stage has a prefix
// of the tiles, join groups and final tiles that it has with larger dims; each is in the same group and touches a
// subset of what its counterpart touches; a join group is there whole or not at all.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "abi/instruction.h"
#include "graph/op_schema.h"
#include "megartp/op_graph.h"

namespace megartp {

inline constexpr uint32_t kMaxRank = 4;

// A hyper-rectangle [begin, end) in elements. Ranks below kMaxRank leave the rest unused.
struct Box {
  uint32_t rank = 0;
  std::array<int32_t, kMaxRank> begin{};
  std::array<int32_t, kMaxRank> end{};

  static Box of(std::initializer_list<std::pair<int64_t, int64_t>> ranges) {
    Box b;
    for (const auto& [lo, hi] : ranges) {
      b.begin[b.rank] = static_cast<int32_t>(lo);
      b.end[b.rank] = static_cast<int32_t>(hi);
      ++b.rank;
    }
    return b;
  }
  bool overlaps(const Box& o) const {
    for (uint32_t d = 0; d < rank; ++d)
      if (begin[d] >= o.end[d] || o.begin[d] >= end[d]) return false;
    return true;
  }
  friend bool operator==(const Box&, const Box&) = default;
};

// One tensor region that a tile touches.
struct Access {
  TensorId tensor = kInvalidId;  // id in the TaskGraph's tensor table (graph tensors keep their ids)
  Box box;
  uint8_t publication = 0;  // writes only: which of the op's results this belongs to; an event counts one publication
  // The write goes to addresses that only the data know (cache slots); the box is then the whole range that may be hit.
  // Tiles of one stage never collide: bindings are checked for unique slots.
  bool scatter = false;
};

struct TileDesc {
  // What the caller asks for besides payload and join group; the rest may then stay empty. clear() keeps them.
  bool wants_regions = true;
  bool wants_costs = true;

  uint32_t num_payload = 0;
  std::array<uint32_t, abi::kMaxPayload> payload{};
  std::vector<Access> reads;
  std::vector<Access> writes;
  uint32_t join_group = abi::kNoJoin;  // fused stages: index of the group within the stage
  // Estimate for packers: bytes moved (weights apart) and multiply-adds.
  uint64_t weight_bytes = 0;
  uint64_t other_bytes = 0;
  uint64_t flops = 0;

  void clear() {
    num_payload = 0;
    payload.fill(0);
    reads.clear();
    writes.clear();
    join_group = abi::kNoJoin;
    weight_bytes = other_bytes = flops = 0;
  }
  void set_payload(std::initializer_list<uint32_t> words) {
    for (uint32_t w : words) payload[num_payload++] = w;
  }
};

struct FinalDesc {
  uint32_t join_group = 0;
  std::vector<Access> reads;  // beyond what the tiles of the group read
  std::vector<Access> writes;
  void clear() {
    reads.clear();
    writes.clear();
  }
};

// What one instruction touches, told by its words alone: OpFamily::regions. An Access here names an operand slot, not a
// tensor. `reads` and `writes` are what Stage::tile() says of the same tile.
//
// Of a fused instruction also what the last arriver of its join group does after all have arrived: what
// Stage::final_tile() says of the group's final tiles (neighbouring ones may share a box), and the reads of what the
// group's tiles left for it, which Stage does not list. Every member of a group must say the same.
struct InstructionRegions {
  std::vector<Access> reads;
  std::vector<Access> writes;
  std::vector<Access> final_reads;
  std::vector<Access> final_writes;
  void clear() {
    reads.clear();
    writes.clear();
    final_reads.clear();
    final_writes.clear();
  }
};
// Stands where a Stage has its tensors: slot i is "tensor" i.
inline constexpr std::array<TensorId, abi::kOperandSlots> kSlotIds{0, 1, 2,  3,  4,  5,  6,  7,
                                                                   8, 9, 10, 11, 12, 13, 14, 15};

class Stage {
 public:
  virtual ~Stage() = default;
  // Fills `out`, which arrives cleared.
  virtual void tile(uint32_t tile_idx, TileDesc& out) const = 0;
  virtual void final_tile(uint32_t /*final_idx*/, FinalDesc& /*out*/) const {}

  std::string name;  // "B0.gemm"
  uint32_t opcode = 0;
  std::vector<uint32_t> spec;   // static parameters, family-defined words
  std::vector<TensorId> slots;  // operand row: tensor of each slot (kInvalidId = 0); at most abi::kOperandSlots
  uint32_t num_tiles = 0;
  uint32_t num_join_groups = 0;
  uint32_t num_final_tiles = 0;
};

// A tensor with resolved dims.
struct ConcreteTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  Storage storage = Storage::kActivation;
  bool is_partial = false;  // several producers contribute addends of one result (the consumer reduces)
};

enum class FinalizerMode : uint8_t { kFused, kTasks };

// What a family sees of the op that it lowers.
class LowerContext {
 public:
  virtual ~LowerContext() = default;
  virtual const OpInfo& op() const = 0;
  virtual const ConcreteTensor& tensor(TensorId id) const = 0;
  virtual const ShapeEnv& shapes() const = 0;
  virtual FinalizerMode finalizer() const = 0;
  // True when the stages must keep the clipping contract for requests too: what a tile touches may then not depend on
  // which rows and lengths which request has.
  virtual bool any_shape() const { return false; }
  // SMs of the GPU that the plan is made for; 0: for a CPU, or not known. What decides bits (K splits) then follows the
  // same rule as the kernels of launch plans.
  virtual uint32_t num_sms() const { return 0; }
  // A plan-private tensor "<op>.<name>".
  virtual TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool is_partial) = 0;

  TensorId input(uint32_t i) const { return op().inputs[i]; }
  TensorId output(uint32_t i) const { return op().outputs[i]; }
  const std::vector<int64_t>& input_dims(uint32_t i) const { return tensor(input(i)).dims; }
  const std::vector<int64_t>& output_dims(uint32_t i) const { return tensor(output(i)).dims; }
};

// A whole tensor in host memory, for the reference backend.
struct HostTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  void* data = nullptr;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct ReferenceContext {
  const OpInfo& op;
  const ShapeEnv& shapes;
  std::span<const HostTensor> inputs;  // those in OpInfo::updates may be written
  std::span<const HostTensor> outputs;
};

// One tile on the CPU.
struct CpuTile {
  uint32_t opcode = 0;
  const uint32_t* payload = nullptr;
  std::span<const uint32_t> spec;
  void* const* operands = nullptr;  // the op's row, abi::kOperandSlots addresses
  std::span<std::byte> scratch;     // private to the worker, at least kCpuScratchBytes, 64-byte aligned
  // Arrives at the instruction's join counter: true for the last arriver, which then sees everything that the others
  // wrote.
  const std::function<bool()>* join = nullptr;

  template <class T>
  T* operand(uint32_t slot) const {
    return static_cast<T*>(operands[slot]);
  }
};
inline constexpr size_t kCpuScratchBytes = size_t{1} << 20;

// What OpFamily::check_instruction judges.
struct OperandType {
  bool present = false;
  DType dtype = DType::kF32;
  std::span<const int64_t> dims;
};
struct InstructionCheck {
  const abi::Instruction& instruction;
  std::span<const uint32_t> spec;
  std::span<const OperandType> operands;  // abi::kOperandSlots entries

  // Operand `slot` is there with this dtype and these dims (-1 accepts any).
  bool operand_is(uint32_t slot, DType dtype, std::initializer_list<int64_t> dims) const {
    const OperandType& o = operands[slot];
    if (!o.present || o.dtype != dtype || o.dims.size() != dims.size()) return false;
    size_t d = 0;
    for (const int64_t want : dims)
      if (const int64_t have = o.dims[d++]; want >= 0 && want != have) return false;
    return true;
  }
};

struct OpcodeInfo {
  uint32_t opcode = 0;
  std::string_view name;  // "qkv_a.fused"
};

class OpFamily : public OpSchema {
 public:
  virtual std::span<const OpcodeInfo> opcodes() const = 0;
  virtual Result<std::vector<std::unique_ptr<Stage>>> lower(LowerContext& context) const = 0;
  // The whole op in double precision with the roundings that its outputs define. Naive on purpose: it is the oracle.
  virtual Status reference(const ReferenceContext& context) const = 0;
  virtual void run_tile(const CpuTile& tile) const = 0;
  // Reader's check, because plans come from files: would run_tile, given operands of these dtypes and dims, stay inside
  // them?
  virtual Status check_instruction(const InstructionCheck& check) const = 0;
  // Adds to `out`, which arrives cleared, what an instruction that check_instruction accepts touches. The prover rests
  // on it, for plans that come from files; share the code with Stage::tile(), so that the two cannot differ.
  virtual void regions(const InstructionCheck& check, InstructionRegions& out) const = 0;
  // "m 0..16, n 128..256, k-split 2" for the disassembler; and "N=2624 K=6144 ..." for a spec.
  virtual std::string describe_payload(uint32_t opcode, std::span<const uint32_t> payload) const = 0;
  virtual std::string describe_spec(std::span<const uint32_t> spec) const = 0;
};

std::span<const OpFamily* const> op_families();
const OpFamily* find_op_family(std::string_view kind);
const OpFamily* find_op_family_by_opcode(uint32_t opcode);
std::string_view opcode_name(uint32_t opcode);  // "?" when unknown
uint32_t find_opcode(std::string_view name);    // kOpcodeNoOp when unknown

// Specs are plain structs of u32 and float words.
template <class Spec>
std::vector<uint32_t> encode_spec(const Spec& spec) {
  static_assert(std::is_trivially_copyable_v<Spec> && sizeof(Spec) % 4 == 0);
  std::vector<uint32_t> words(sizeof(Spec) / 4);
  __builtin_memcpy(words.data(), &spec, sizeof(Spec));
  return words;
}
template <class Spec>
Spec decode_spec(std::span<const uint32_t> words) {
  static_assert(std::is_trivially_copyable_v<Spec> && sizeof(Spec) % 4 == 0);
  Spec spec{};
  __builtin_memcpy(&spec, words.data(), words.size_bytes() < sizeof(Spec) ? words.size_bytes() : sizeof(Spec));
  return spec;
}

}  // namespace megartp
