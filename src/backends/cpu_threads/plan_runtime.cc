#include "backends/cpu_threads/plan_runtime.h"

#include <algorithm>
#include <thread>

#include "backends/cpu_threads/trace_log.h"

namespace megartp {

OperandTable::OperandTable(const KernelPlan& plan) : addresses(plan.operand_rows.size() * abi::kOperandSlots) {
  for (const PlanOperandRow& row : plan.operand_rows) families.push_back(find_op_family_by_opcode(row.opcode));
}

void OperandTable::fill(const KernelPlan& plan, const std::function<void*(uint32_t)>& address) {
  for (size_t r = 0; r < plan.operand_rows.size(); ++r) {
    for (size_t s = 0; s < abi::kOperandSlots; ++s) {
      const uint32_t t = plan.operand_rows[r].tensors[s];
      addresses[r * abi::kOperandSlots + s] = t == kInvalidId ? nullptr : address(t);
    }
  }
}

void OperandTable::run_tile(const KernelPlan& plan, const abi::Instruction& instruction, std::span<std::byte> scratch,
                            const std::function<bool()>* join) const {
  if (instruction.opcode == abi::kOpcodeRelay) return;
  CpuTile tile;
  tile.opcode = instruction.opcode;
  tile.payload = instruction.payload;
  tile.spec = plan.specs[instruction.spec_id].words;
  tile.operands = &addresses[size_t{instruction.operand_row} * abi::kOperandSlots];
  tile.scratch = scratch;
  tile.join = join;
  families[instruction.operand_row]->run_tile(tile);
}

std::vector<BoundTensor> plan_tensors(const KernelPlan& plan, const AlignedBytes& arena) {
  std::vector<BoundTensor> tensors;
  for (const PlanTensor& t : plan.tensors) {
    const bool external = t.arena_offset == kExternal;
    tensors.push_back(
        {t.name, t.dtype, t.storage, t.num_bytes, external, external ? nullptr : arena.get() + t.arena_offset});
  }
  return tensors;
}

PlanRuntime::PlanRuntime(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options)
    : plan_(std::move(plan)),
      options_(options),
      arena_(plan_->workspace_bytes),
      bindings_(plan_tensors(*plan_, arena_)),
      events_(plan_->events.size()),
      joins_(plan_->join_counts.size()),
      operands_(*plan_),
      position_(plan_->num_tasks),
      task_states_(plan_->num_tasks) {
  for (size_t i = 0; i < plan_->instructions.size(); ++i)
    if (plan_->instructions[i].opcode != abi::kOpcodeNoOp) position_[plan_->instructions[i].task_id] = i;
}

Status PlanRuntime::begin() {
  MEGARTP_TRY(bindings_.check_complete());
  operands_.fill(*plan_, [this](uint32_t t) { return bindings_.tensors()[t].address; });
  ++epoch_;
  return {};
}

void PlanRuntime::start_over() {
  events_.reset();
  joins_.reset();
  epoch_base_ = epoch_;
}

uint64_t PlanRuntime::count(uint32_t event) const {
  const uint64_t before = run_offset(event);
  const uint64_t count = events_.peek(event);
  return count < before ? 0 : count - before;
}

TaskState PlanRuntime::state(uint32_t task) const {
  const uint32_t word = task_states_[task].load(std::memory_order_relaxed);
  // The epoch's low bits are enough to tell this run from the one before.
  return word >> 2 == (static_cast<uint32_t>(epoch_) & 0x3fffffffU) ? static_cast<TaskState>(word & 3U)
                                                                    : TaskState::kNotStarted;
}

std::vector<uint32_t> PlanRuntime::unsent(uint32_t event) const {
  std::vector<uint32_t> tasks;
  for (uint32_t t = 0; t < plan_->num_tasks; ++t) {
    const abi::Instruction& i = instruction_of(t);
    const bool signals = std::any_of(i.signals, i.signals + abi::num_signals(i),
                                     [event](const abi::Signal& s) { return s.event == event; });
    if (signals && state(t) != TaskState::kSent) tasks.push_back(t);
  }
  std::ranges::stable_sort(tasks, std::greater<>(), [this](uint32_t t) { return state(t); });
  return tasks;
}

TileRun PlanRuntime::execute(const abi::Instruction& instruction, std::span<std::byte> scratch,
                             const Crossed* crossed) {
  const bool joins = instruction.join_counter != abi::kNoJoin;
  bool last = !joins;
  const std::function<bool()> join = [&] {
    last = joins_.join(instruction.join_counter, instruction.join_count);
    return last;
  };
  const uint32_t task = instruction.task_id;
  set_state(task, TaskState::kRunning);
  TileRun run;
  if (take_times_) run.ready_ns = trace_clock_ns();
  operands_.run_tile(*plan_, instruction, scratch, joins ? &join : nullptr);
  if (take_times_) run.done_ns = trace_clock_ns();
  run.sent = last;
  set_state(task, TaskState::kRan);
  if (last) {
    if (task == options_.lose_signals_of) return run;
    for (uint32_t i = 0; i < abi::num_signals(instruction); ++i) {
      if (options_.randomize && i > 0) std::this_thread::yield();
      const uint32_t event = instruction.signals[i].event;
      const uint32_t increment = abi::increment(instruction.signals[i]);
      const uint64_t before = events_.signal(event, increment, task) - run_offset(event);
      if (crossed != nullptr) (*crossed)(event, before, before + increment);
    }
  }
  set_state(task, TaskState::kSent);
  return run;
}

}  // namespace megartp
