// One execution of a plan in a chosen order, with delayed visibility (explore.h): the part of the exploring mode that
// knows tiles, counters and values, but not which orders to try.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/cpu_threads/explore_image.h"
#include "backends/cpu_threads/plan_runtime.h"

namespace megartp {

// What one worker does next: take some waits, and usually run the task.
struct ExploreStep {
  uint32_t worker = 0;
  uint32_t task = 0;
  uint32_t first_wait = 0, end_wait = 0;
  bool runs = true;  // false: a wait that need not see every signal of its event is a step of its own
};

struct ExecutedRun {
  uint32_t task = 0;
  uint32_t worker = 0;
  size_t step = 0;  // position in the execution
  RunSet before;    // runs whose writes it saw when it began
  RunSet view;      // ... at its end: a last arriver sees the other arrivers as well
  RunSet early;     // runs whose writes it saw though nothing orders them
  bool has_early = false;
  bool is_last = true;  // of its join group (or without one)
  Writes writes;
};
// A wait that could have seen fewer signals, or more.
struct ExecutedWait {
  uint32_t worker = 0;
  uint32_t task = 0;
  size_t step = 0;
  uint32_t event = 0;
  uint32_t threshold = 0;
  uint64_t count = 0;  // of the event when it was taken
  RunSet before;       // the worker's view before it
};

class Execution {
 public:
  Execution(const KernelPlan& plan, const Bindings& bindings);

  const KernelPlan& plan() const { return plan_; }
  const ImageLayout& layout() const { return layout_; }
  const abi::Instruction& instruction_of(uint32_t task) const { return *instruction_of_[task]; }

  // Forgets everything; memory is what is bound.
  void restart();
  // The next step of a worker; nothing when its queue is over. is_enabled: its waits are reached.
  std::optional<ExploreStep> next(uint32_t worker) const;
  bool is_enabled(const ExploreStep& step) const;
  // Takes a step. `early`: tasks that ran already and whose writes this one sees though nothing orders them.
  void take(const ExploreStep& step, std::span<const uint32_t> early);

  const std::vector<ExecutedRun>& runs() const { return runs_; }
  const std::vector<ExecutedWait>& waits() const { return waits_; }
  uint64_t count(uint32_t event) const { return counts_[event]; }
  bool has_run(uint32_t task) const { return run_of_[task] != kNotRun; }

  // Would the run have written anything else, had it seen these runs' writes?
  bool would_differ(const ExecutedRun& run, const std::vector<size_t>& seen);
  // All writes of this execution, in order.
  const std::byte* final_image();
  // Every task in the order of ids, on one memory.
  void run_sequentially(std::byte* image);

 private:
  static constexpr size_t kNotRun = ~size_t{0};
  struct Queue {
    uint32_t slot = 0;
    uint32_t wait = 0;
    RunSet view;
  };

  // The image that a run with this view sees, in image_.
  void build(const RunSet& view, const RunSet* early, const std::vector<size_t>* also);
  void run_tile(const ExecutedRun& run, const std::vector<size_t>* also, Writes* out);
  void skip_noops(uint32_t worker);

  const KernelPlan& plan_;
  const Bindings& bindings_;
  ImageLayout layout_;
  OperandTable operands_;
  AlignedBytes base_, image_, before_, scratch_;
  std::vector<const abi::Instruction*> instruction_of_;
  std::vector<uint64_t> sums_;  // of each event: all signals of a run
  // State of the execution.
  size_t num_steps_ = 0;
  std::vector<Queue> queues_;
  std::vector<uint64_t> counts_;
  std::vector<RunSet> event_views_, join_views_;
  std::vector<uint32_t> arrivals_;
  std::vector<size_t> run_of_;  // of each task: index into runs_
  std::vector<ExecutedRun> runs_;
  std::vector<ExecutedWait> waits_;
};

}  // namespace megartp
