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

 protected:
  ThreadsExecutable(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options)
      : runtime_(std::move(plan), options), states_(runtime_.plan().num_workers), stats_(runtime_.plan().num_workers) {}

  // One run between PlanRuntime::begin() and its end; fills dump_ when it fails.
  virtual Status run_round() = 0;

  Status make_scratch();
  const KernelPlan& plan() const { return runtime_.plan(); }
  std::span<std::byte> scratch(uint32_t w) const { return {scratch_[w].get(), scratch_[w].size()}; }
  void count(uint32_t w, const abi::Instruction& instruction, double busy_ns) {
    if (!runtime_.options().collect_stats) return;
    stats_[w].busy_ns[instruction.operand_row] += busy_ns;
    ++stats_[w].tasks[instruction.operand_row];
  }

  PlanRuntime runtime_;
  std::vector<WorkerState> states_;
  std::vector<WorkerStats> stats_;
  std::vector<AlignedBytes> scratch_;
  std::atomic<bool> abort_{false};
  FaultDump dump_;
};

}  // namespace megartp
