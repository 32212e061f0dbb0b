// What the static walker and the dynamic scheduler have in common as executables: bindings, stats, the last fault.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu_threads/plan_runtime.h"
#include "backends/cpu_threads/trace_log.h"
#include "backends/cpu_threads/worker_state.h"
#include "plan/fault_dump.h"

namespace megartp {

class ThreadsExecutable : public Executable {
 public:
  Status bind(std::string_view tensor, void* data, size_t num_bytes) override {
    return runtime_.bindings().bind(tensor, data, num_bytes);
  }
  void* data(std::string_view tensor) const override { return runtime_.bindings().address(tensor); }
  void poison() override { runtime_.bindings().poison(std::byte{0xff}); }
  const FaultDump* fault() const override { return dump_.records.empty() ? nullptr : &dump_; }
  Result<RunStats> run() override;
  Status record_trace(uint32_t records_per_worker) override;
  const RawTrace* raw_trace() const override { return has_raw_ ? &raw_ : nullptr; }

 protected:
  ThreadsExecutable(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options)
      : runtime_(std::move(plan), options), states_(runtime_.plan().num_workers), stats_(runtime_.plan().num_workers) {}

  // One run between PlanRuntime::begin() and its end; fills dump_ when it fails.
  virtual Status run_round() = 0;

  Status make_scratch();
  const KernelPlan& plan() const { return runtime_.plan(); }
  std::span<std::byte> scratch(uint32_t w) const { return {scratch_[w].get(), scratch_[w].size()}; }
  bool is_recording() const { return !logs_.empty(); }
  // Of worker w, which has had the instruction since visible_ns (0 unless is_recording()).
  void count(uint32_t w, uint32_t slot, const abi::Instruction& instruction, uint64_t visible_ns, const TileRun& run) {
    if (is_recording())
      logs_[w].add(
          {w, slot, instruction.task_id, run.sent ? abi::kTraceSent : 0, visible_ns, run.ready_ns, run.done_ns, 0});
    if (!runtime_.options().collect_stats) return;
    stats_[w].busy_ns[instruction.operand_row] += static_cast<double>(run.done_ns - run.ready_ns);
    ++stats_[w].tasks[instruction.operand_row];
  }

  PlanRuntime runtime_;
  std::vector<WorkerState> states_;
  std::vector<WorkerStats> stats_;
  std::vector<AlignedBytes> scratch_;
  std::atomic<bool> abort_{false};
  FaultDump dump_;

 private:
  void collect_trace(uint64_t begin_ns, uint64_t end_ns);

  std::vector<TraceLog> logs_;  // of each worker; none: nothing is recorded
  RawTrace raw_;
  bool has_raw_ = false;
};

}  // namespace megartp
