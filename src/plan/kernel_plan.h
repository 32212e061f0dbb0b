// KernelPlan: the immutable, serialisable result of packing. Holds no address.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/instruction.h"
#include "lowering/task_graph.h"
#include "megartp/error.h"
#include "plan/target.h"

namespace megartp {

enum class Packer : uint8_t {
  kRoundRobin,    // task i goes to worker i mod W
  kCriticalPath,  // list scheduling by longest remaining path, with the target's cost model
  kLongestTail,   // the same by what remains after the task itself
  kInsertion,     // by what remains after a task, each where it can begin first, gaps between others included
};
inline constexpr std::array kPackers{Packer::kRoundRobin, Packer::kCriticalPath, Packer::kLongestTail,
                                     Packer::kInsertion};
std::string_view to_string(Packer packer);  // "round-robin", "critical-path", "longest-tail", "insertion"
Result<Packer> parse_packer(std::string_view name);

inline constexpr uint64_t kExternal = ~uint64_t{0};

struct PlanTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  Storage storage = Storage::kActivation;
  uint64_t arena_offset = kExternal;  // bytes into the workspace, 256-byte aligned; kExternal: bound by the caller
  uint64_t num_bytes = 0;
};

struct PlanOperandRow {
  std::string name;  // stage name, "B0.gemm"
  std::string op;    // op name, "B0"
  uint32_t opcode = 0;
  std::vector<uint32_t> tensors;  // abi::kOperandSlots entries: index into tensors, or kInvalidId
};

struct PlanEvent {
  uint32_t total = 0;         // what all signals of one run add up to
  uint32_t producer_row = 0;  // operand row of the stage that signals it; kInvalidId: several do
  uint32_t publication = 0;
};

struct PlanSpec {
  uint32_t opcode = 0;
  std::vector<uint32_t> words;
};

struct KernelPlan {
  std::string graph_name;
  std::string target;
  std::string packer;
  std::string finalizer;   // "fused", "tasks"
  std::string graph_hash;  // XXH3-128 of the graph's JSON, hex; set by whoever has the JSON, pack() leaves it empty
  ShapeEnv shapes;
  uint32_t num_tasks = 0;
  uint32_t num_workers = 0;
  uint32_t queue_depth = 0;
  uint64_t workspace_bytes = 0;
  std::vector<abi::Instruction> instructions;  // [num_workers, queue_depth], padded with NoOps
  std::vector<PlanEvent> events;
  std::vector<uint32_t> join_counts;
  std::vector<PlanSpec> specs;
  std::vector<PlanOperandRow> operand_rows;
  std::vector<PlanTensor> tensors;

  const abi::Instruction& instruction(uint32_t worker, uint32_t slot) const {
    return instructions[size_t{worker} * queue_depth + slot];
  }
};

struct PackOptions {
  Packer packer = Packer::kCriticalPath;
  uint32_t num_workers = 0;  // 0: the target's
};
Result<KernelPlan> pack(const TaskGraph& tasks, const TargetDesc& target, const PackOptions& options = {});

// "B0.gemm"; "several" when more than one stage signals the event.
std::string_view producer_name(const KernelPlan& plan, uint32_t event);

// Structural check, linear time: every index in range, reserved words zero, every task once, signals add up to totals,
// payloads accepted by their families. (Ordering is proved elsewhere.)
Status check_plan(const KernelPlan& plan);

// File: "MRTPPLAN", versions, sizes, XXH3-128 of the rest, a JSON header, then little-endian sections.
// docs/instruction-abi.md.
std::string serialize_plan(const KernelPlan& plan);
Result<KernelPlan> parse_plan(std::string_view bytes);              // never trusts a byte; ends with check_plan
Status save_plan(const KernelPlan& plan, const std::string& path);  // temporary file, fsync, rename
Result<KernelPlan> load_plan(const std::string& path);

// Text listing of every instruction.
std::string disassemble(const KernelPlan& plan);
std::string disassemble(const KernelPlan& plan, const abi::Instruction& instruction);

}  // namespace megartp
