// A plan with memory, counters and the state of each task: what the ways of running it on CPU threads share.
//
// begin() opens a run; then any number of threads may call the rest. Who runs which instruction when is the caller's
// business.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/bindings.h"
#include "backends/cpu_threads/counters.h"
#include "ops/op_family.h"

namespace megartp {

// Per task and run; relaxed, for reports only.
enum class TaskState : uint32_t {
  kNotStarted,
  kRunning,
  kRan,   // the tile is over, signals not yet
  kSent,  // all signals that are its to send are sent
};

// The operand table with addresses, and the family of each row (nullptr for relays).
struct OperandTable {
  explicit OperandTable(const KernelPlan& plan);
  void fill(const KernelPlan& plan, const std::function<void*(uint32_t tensor)>& address);
  // Runs one tile; nothing for a relay.
  void run_tile(const KernelPlan& plan, const abi::Instruction& instruction, std::span<std::byte> scratch,
                const std::function<bool()>* join) const;

  std::vector<void*> addresses;
  std::vector<const OpFamily*> families;
};

// When a tile ran, in ns of trace_clock_ns() (zeros unless times are taken), and whether its signals were its to send.
struct TileRun {
  uint64_t ready_ns = 0;
  uint64_t done_ns = 0;
  bool sent = false;
};

// Every activation inside `arena`, everything else to be bound.
std::vector<BoundTensor> plan_tensors(const KernelPlan& plan, const AlignedBytes& arena);

class PlanRuntime {
 public:
  PlanRuntime(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options);

  const KernelPlan& plan() const { return *plan_; }
  const CpuThreadsOptions& options() const { return options_; }
  Bindings& bindings() { return bindings_; }
  const Bindings& bindings() const { return bindings_; }
  uint64_t epoch() const { return epoch_; }
  // Instruction of a task, and where it stands in the plan's queues.
  const abi::Instruction& instruction_of(uint32_t task) const { return plan_->instructions[position_[task]]; }
  uint32_t worker_of(uint32_t task) const { return static_cast<uint32_t>(position_[task] / plan_->queue_depth); }
  uint32_t slot_of(uint32_t task) const { return static_cast<uint32_t>(position_[task] % plan_->queue_depth); }

  // Whether execute() takes times; only while no thread runs.
  void take_times(bool on) { take_times_ = on; }
  // Opens the next run: all tensors must be bound.
  Status begin();
  // After a failed run, while no thread runs: counters start over, so that the executable stays usable.
  void start_over();

  bool reached(const abi::Wait& wait) const {
    return events_.reached(wait.event, wait.threshold + run_offset(wait.event));
  }
  // The first wait of the task whose event has not come far enough.
  std::optional<uint32_t> first_unreached(uint32_t task) const {
    const abi::Instruction& i = instruction_of(task);
    for (uint32_t k = 0; k < abi::num_waits(i); ++k)
      if (!reached(i.waits[k])) return k;
    return std::nullopt;
  }
  // How far the event is in this run; for reports.
  uint64_t count(uint32_t event) const;
  uint32_t last_signaller(uint32_t event) const { return events_.last_task(event); }
  TaskState state(uint32_t task) const;
  // The tasks that have yet to signal `event`, those that ran without doing so first.
  std::vector<uint32_t> unsent(uint32_t event) const;

  // Computes the tile and sends the signals. `crossed(event, before, after)` hears of each signal, counts of this run.
  using Crossed = std::function<void(uint32_t event, uint64_t before, uint64_t after)>;
  TileRun execute(const abi::Instruction& instruction, std::span<std::byte> scratch, const Crossed* crossed);

 private:
  // What earlier runs added to an event.
  uint64_t run_offset(uint32_t event) const {
    return (epoch_ - epoch_base_ - 1) * uint64_t{plan_->events[event].total};
  }
  void set_state(uint32_t task, TaskState state) {
    task_states_[task].store(static_cast<uint32_t>(epoch_) << 2 | static_cast<uint32_t>(state),
                             std::memory_order_relaxed);
  }

  std::shared_ptr<const KernelPlan> plan_;
  CpuThreadsOptions options_;
  AlignedBytes arena_;
  Bindings bindings_;
  Counters events_;
  Counters joins_;
  OperandTable operands_;
  std::vector<size_t> position_;  // of a task in KernelPlan::instructions
  std::vector<std::atomic<uint32_t>> task_states_;
  bool take_times_ = false;
  uint64_t epoch_ = 0;       // written while no thread runs
  uint64_t epoch_base_ = 0;  // epochs before this one do not count: the counters were reset
};

}  // namespace megartp
