// cpu-threads with static queues: N worker threads, one per queue, walk the plan's instruction tensor with the plan's
// counters.
//
// run() wakes the workers with a new epoch and watches them. A worker waits only for events, in queue order; the
// watchdog ends a run that cannot progress (all unfinished workers wait, nothing changed between two looks) or that
// makes no progress for the time-out, and reports what every worker was waiting for.
#include "backends/cpu_threads/dynamic_threads.h"
#include "backends/cpu_threads/stall_report.h"
#include "backends/cpu_threads/thread_team.h"
#include "backends/cpu_threads/threads_executable.h"
#include "backends/cpu_threads/unproved.h"
#include "verify/plan/event_order.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

class StaticThreads final : public ThreadsExecutable {
 public:
  StaticThreads(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options)
      : ThreadsExecutable(std::move(plan), options) {}
  ~StaticThreads() override { team_.stop(); }

  Status start() {
    MEGARTP_TRY(make_scratch());
    return team_.start(plan().num_workers, [this](uint32_t w) { walk_queue(w); });
  }

 private:
  Status run_round() override {
    team_.begin_round();
    return watch(
        team_, runtime_, [this] { return look_at(runtime_, states_); },
        [this] { abort_.store(true, std::memory_order_relaxed); }, dump_);
  }

  void walk_queue(uint32_t w) {
    WorkerState& state = states_[w];
    DelayRng rng(runtime_.options().seed * 0x2545f4914f6cdd1dULL + w + runtime_.epoch() * 0x9e3779b9ULL);
    for (uint32_t slot = 0; slot < plan().queue_depth; ++slot) {
      const abi::Instruction& instruction = plan().instruction(w, slot);
      state.slot.store(slot, std::memory_order_relaxed);
      if (instruction.opcode == abi::kOpcodeNoOp) continue;
      state.task.store(instruction.task_id, std::memory_order_relaxed);
      const uint64_t visible_ns = is_recording() ? trace_clock_ns() : 0;
      if (!wait_inputs(state, instruction)) return;
      state.phase.store(WorkerPhase::kRunning, std::memory_order_relaxed);
      if (runtime_.options().randomize) rng.delay();
      count(w, slot, instruction, visible_ns, runtime_.execute(instruction, scratch(w), nullptr));
    }
    state.slot.store(plan().queue_depth, std::memory_order_relaxed);
    state.phase.store(WorkerPhase::kDone, std::memory_order_relaxed);
  }

  bool wait_inputs(WorkerState& state, const abi::Instruction& instruction) {
    for (uint32_t i = 0; i < abi::num_waits(instruction); ++i) {
      const abi::Wait& wait = instruction.waits[i];
      if (runtime_.reached(wait)) continue;
      state.wait_idx.store(i, std::memory_order_relaxed);
      state.phase.store(WorkerPhase::kWaiting, std::memory_order_relaxed);
      Backoff backoff;
      while (!runtime_.reached(wait)) {
        if (abort_.load(std::memory_order_relaxed)) return false;
        backoff.pause();
      }
    }
    return true;
  }

  ThreadTeam team_;
};

Status check_threads(const KernelPlan& plan) {
  constexpr uint32_t kMaxThreads = 1024;
  if (plan.num_workers <= kMaxThreads) return {};
  return make_error(ErrorCode::kUnsupported, "cpu-threads: the plan has " + std::to_string(plan.num_workers) +
                                                 " workers, at most " + std::to_string(kMaxThreads) +
                                                 " threads are started");
}

}  // namespace

Result<std::unique_ptr<Executable>> prepare_cpu_threads(std::shared_ptr<const KernelPlan> plan,
                                                        const CpuThreadsOptions& options) {
  MEGARTP_TRY(check_threads(*plan));  // before the proof, whose memory grows with workers
  if (options.schedule == Schedule::kDynamic) {
    // Nothing may rest on the order of queues that this schedule ignores.
    MEGARTP_TRY(check_plan(*plan));
    MEGARTP_TRY(require_proved(event_order_plan(*plan)));
  } else {
    MEGARTP_TRY(require_proved(*plan));
  }
  return prepare_unproved(std::move(plan), options);
}

Result<std::unique_ptr<Executable>> prepare_unproved(std::shared_ptr<const KernelPlan> plan,
                                                     const CpuThreadsOptions& options) {
  MEGARTP_TRY(check_plan(*plan));
  MEGARTP_TRY(check_threads(*plan));
  if (options.schedule == Schedule::kDynamic) return prepare_dynamic_threads(std::move(plan), options);
  auto executable = std::make_unique<StaticThreads>(std::move(plan), options);
  MEGARTP_TRY(executable->start());
  return executable;
}

}  // namespace megartp
