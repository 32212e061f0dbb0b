#include "support/instruction_fuzz.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/lower_op.h"

// g++ defines a macro, clang 19 answers a question that g++ 12 does not know.
#if defined(__SANITIZE_ADDRESS__)
#define MEGARTP_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEGARTP_HAS_ASAN 1
#endif
#endif

namespace megartp::test {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xa5};
constexpr size_t kMaxOperandBytes = size_t{1} << 22;

struct Operand {
  bool present = false;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
};

// One instruction with everything that check_instruction looks at.
struct Subject {
  abi::Instruction instruction{};
  std::vector<uint32_t> spec;
  std::vector<Operand> operands;
};

uint32_t odd_word(RngSequence& rng, uint32_t old) {
  constexpr uint32_t kWords[] = {0,   1,   2,   16,          63,          64,          65,
                                 127, 128, 129, 0x7fffffffU, 0x80000000U, 0xffffff80U, 0xffffffffU};
  switch (rng.below(4)) {
    case 0: return kWords[rng.below(std::size(kWords))];
    case 1: return old + 1;
    case 2: return old - 1;
    default: return static_cast<uint32_t>(rng.below(uint64_t{1} << (1 + rng.below(32))));
  }
}

void mutate_operand(Operand& o, RngSequence& rng) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI32, DType::kU8};
  switch (rng.below(8)) {
    case 0: o.present = !o.present; break;
    case 1: o.dtype = kTypes[rng.below(std::size(kTypes))]; break;
    case 2: o.dims.push_back(1); break;
    case 3:
      if (!o.dims.empty()) o.dims.pop_back();
      break;
    default:
      if (!o.dims.empty()) {
        int64_t& d = o.dims[rng.below(o.dims.size())];
        d = std::max<int64_t>(
            1, rng.below(2) == 0 ? d + static_cast<int64_t>(rng.below(5)) - 2 : static_cast<int64_t>(rng.below(300)));
      }
  }
}

void mutate(Subject& s, RngSequence& rng) {
  for (uint64_t n = rng.below(4); n > 0; --n) {
    switch (rng.below(8)) {
      case 0:
        if (!s.spec.empty()) {
          uint32_t& w = s.spec[rng.below(s.spec.size())];
          w = odd_word(rng, w);
        }
        break;
      case 1:
        if (rng.below(2) == 0) {
          s.spec.push_back(0);
        } else if (!s.spec.empty()) {
          s.spec.pop_back();
        }
        break;
      case 2:
        s.instruction.counts = abi::make_counts(0, 0, static_cast<uint32_t>(rng.below(abi::kMaxPayload + 1)));
        break;
      case 3: mutate_operand(s.operands[rng.below(s.operands.size())], rng); break;
      case 4: {  // the same dim of all operands that have it, so that they still agree
        int64_t from = 0;
        for (const Operand& o : s.operands)
          if (o.present && !o.dims.empty() && (from == 0 || rng.below(2) == 0)) from = o.dims[rng.below(o.dims.size())];
        const auto to = static_cast<int64_t>(1 + rng.below(200));
        for (Operand& o : s.operands) std::replace(o.dims.begin(), o.dims.end(), from, to);
        if (rng.below(2) == 0)
          std::replace(s.spec.begin(), s.spec.end(), static_cast<uint32_t>(from), static_cast<uint32_t>(to));
        break;
      }
      default: {
        uint32_t& w = s.instruction.payload[rng.below(std::max(1U, abi::num_payload(s.instruction)))];
        w = odd_word(rng, w);
      }
    }
  }
}

// Operand memory of exactly the stated size between guards.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t num_bytes) : num_bytes_(num_bytes), data_(new std::byte[num_bytes + 2 * kGuardBytes]) {
    std::fill_n(data_.get(), num_bytes + 2 * kGuardBytes, kGuard);
    std::fill_n(data(), num_bytes, std::byte{0});
  }
  std::byte* data() { return data_.get() + kGuardBytes; }
  bool intact() {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    return std::all_of(data_.get(), data(), is_guard) &&
           std::all_of(data() + num_bytes_, data() + num_bytes_ + kGuardBytes, is_guard);
  }

 private:
  size_t num_bytes_;
  std::unique_ptr<std::byte[]> data_;
};

size_t operand_bytes(const Operand& o) {
  size_t n = size_in_bytes(o.dtype);
  for (const int64_t d : o.dims) {
    if (n > kMaxOperandBytes) return n;
    n *= static_cast<size_t>(d);
  }
  return n;
}

// Returns false when the operands are too large to try.
bool run(const OpFamily& family, const Subject& s, bool last) {
  std::vector<std::unique_ptr<GuardedBuffer>> buffers;
  std::vector<std::unique_ptr<std::byte[]>> exact;  // the sanitizer sees the first byte beyond these
  std::vector<void*> row(abi::kOperandSlots, nullptr);
  for (size_t slot = 0; slot < s.operands.size(); ++slot) {
    if (!s.operands[slot].present) continue;
    const size_t n = operand_bytes(s.operands[slot]);
    if (n > kMaxOperandBytes) return false;
#if defined(MEGARTP_HAS_ASAN)
    exact.emplace_back(new std::byte[n]());
    row[slot] = exact.back().get();
#else
    buffers.push_back(std::make_unique<GuardedBuffer>(n));
    row[slot] = buffers.back()->data();
#endif
  }
  static std::vector<std::byte> scratch(kCpuScratchBytes + 64);
  const auto misaligned = reinterpret_cast<uintptr_t>(scratch.data()) % 64;
  const std::function<bool()> join = [last] { return last; };
  CpuTile tile;
  tile.opcode = s.instruction.opcode;
  tile.payload = s.instruction.payload;
  tile.spec = s.spec;
  tile.operands = row.data();
  tile.scratch = std::span(scratch).subspan(misaligned == 0 ? 0 : 64 - misaligned, kCpuScratchBytes);
  tile.join = s.instruction.join_counter == abi::kNoJoin ? nullptr : &join;
  family.run_tile(tile);
  for (const auto& b : buffers)
    EXPECT_TRUE(b->intact()) << family.kind() << ": a tile that check_instruction accepted wrote outside an operand: "
                             << family.describe_payload(s.instruction.opcode, std::span(s.instruction.payload))
                             << ", spec " << family.describe_spec(s.spec);
  return true;
}

}  // namespace

InstructionFuzzResult fuzz_check_instruction(const OpCase& c, FinalizerMode mode, size_t iterations, uint64_t seed) {
  InstructionFuzzResult result;
  OpGraph graph("instruction_fuzz");
  std::vector<Tensor> inputs;
  for (const OpInput& in : c.inputs)
    inputs.push_back(in.is_state ? graph.state(in.name, in.dtype, in.shape)
                                 : graph.runtime_arg(in.name, in.dtype, in.shape));
  graph.op(c.kind, "op", inputs, c.attrs);
  EXPECT_TRUE(graph.status()) << graph.status().error().to_string();
  if (!graph.status()) return result;
  const OpFamily* family = find_op_family(c.kind);
  OneOpContext context(graph, graph.ops()[0], c.shapes, mode);
  const auto stages = family->lower(context);
  EXPECT_TRUE(stages) << stages.error().to_string();
  if (!stages) return result;
  RngSequence rng(seed);
  for (size_t i = 0; i < iterations && !::testing::Test::HasFailure(); ++i) {
    const Stage& stage = *(*stages)[i % stages->size()];
    if (stage.num_tiles == 0) continue;
    TileDesc tile;
    stage.tile(static_cast<uint32_t>(rng.below(stage.num_tiles)), tile);
    Subject s;
    s.instruction.opcode = stage.opcode;
    s.instruction.counts = abi::make_counts(0, 0, tile.num_payload);
    s.instruction.join_counter = tile.join_group == abi::kNoJoin ? abi::kNoJoin : 0;
    s.instruction.join_count = tile.join_group == abi::kNoJoin ? 0 : 1;
    std::copy(tile.payload.begin(), tile.payload.end(), s.instruction.payload);
    s.spec = stage.spec;
    s.operands.resize(abi::kOperandSlots);
    for (size_t slot = 0; slot < stage.slots.size(); ++slot)
      if (stage.slots[slot] != kInvalidId)
        s.operands[slot] = {true, context.tensor(stage.slots[slot]).dtype, context.tensor(stage.slots[slot]).dims};
    mutate(s, rng);
    std::vector<OperandType> types;
    for (const Operand& o : s.operands) types.push_back({o.present, o.dtype, o.dims});
    const Status ok = family->check_instruction(InstructionCheck{s.instruction, s.spec, types});
    if (ok && run(*family, s, rng.below(2) == 0)) {
      ++result.num_accepted;
    } else {
      ++result.num_refused;
    }
  }
  return result;
}

}  // namespace megartp::test
