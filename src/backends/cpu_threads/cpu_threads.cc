// cpu-threads: N worker threads, one per queue, walk the plan's instruction tensor with the plan's counters.
//
// run() wakes the workers with a new epoch and watches them. A worker waits only for events, in queue order; the
// watchdog ends a run that cannot progress (all unfinished workers wait, nothing changed between two looks) or that
// makes no progress for the time-out, and reports what every worker was waiting for.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "backends/backend.h"
#include "backends/bindings.h"
#include "backends/cpu_threads/counters.h"
#include "backends/cpu_threads/stall_report.h"
#include "backends/cpu_threads/unproved.h"
#include "backends/cpu_threads/worker_state.h"
#include "ops/op_family.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

using Clock = std::chrono::steady_clock;

// splitmix64, for delays only: results never depend on it.
class DelayRng {
 public:
  explicit DelayRng(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// Waiting gets cheaper the longer it takes: workers may outnumber cores.
class Backoff {
 public:
  void pause() {
    if (++count_ < 16) return;
    if (count_ < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(count_ < 256 ? 20 : 200));
    }
  }

 private:
  uint32_t count_ = 0;
};

class CpuThreads final : public Executable {
 public:
  CpuThreads(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options, std::vector<BoundTensor> tensors,
             AlignedBytes arena)
      : plan_(std::move(plan)),
        options_(options),
        bindings_(std::move(tensors)),
        arena_(std::move(arena)),
        events_(plan_->events.size()),
        joins_(plan_->join_counts.size()),
        operands_(plan_->operand_rows.size() * abi::kOperandSlots),
        states_(plan_->num_workers),
        stats_(plan_->num_workers) {
    for (const PlanOperandRow& row : plan_->operand_rows) families_.push_back(find_op_family_by_opcode(row.opcode));
  }

  // Starts the workers. kOutOfResources when the system gives no more threads or memory; those already started have
  // left then.
  Status start() {
    try {
      for (uint32_t w = 0; w < plan_->num_workers; ++w) scratch_.emplace_back(kCpuScratchBytes);
      for (uint32_t w = 0; w < plan_->num_workers; ++w) threads_.emplace_back([this, w] { worker_main(w); });
    } catch (const std::exception& e) {
      const size_t started = threads_.size();
      stop_workers();
      return make_error(ErrorCode::kOutOfResources, "cpu-threads: cannot start worker " + std::to_string(started) +
                                                        " of " + std::to_string(plan_->num_workers) + ": " + e.what());
    }
    return {};
  }

  ~CpuThreads() override { stop_workers(); }

  CpuThreads(const CpuThreads&) = delete;
  CpuThreads& operator=(const CpuThreads&) = delete;

  Status bind(std::string_view tensor, void* data, size_t num_bytes) override {
    return bindings_.bind(tensor, data, num_bytes);
  }
  void* data(std::string_view tensor) const override { return bindings_.address(tensor); }
  void poison() override { bindings_.poison(std::byte{0xff}); }

  Result<RunStats> run() override {
    MEGARTP_TRY(bindings_.check_complete());
    fill_operands();
    for (WorkerStats& s : stats_) s.reset(plan_->operand_rows.size());
    for (WorkerState& s : states_) {
      s.slot.store(0, std::memory_order_relaxed);
      s.phase.store(WorkerPhase::kIdle, std::memory_order_relaxed);
    }
    abort_.store(false, std::memory_order_relaxed);
    const auto start = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      ++epoch_;
      num_done_ = 0;
    }
    wake_.notify_all();
    Status ok = watch();
    if (!ok) {
      // The counters are half way; start over, so that the executable stays usable.
      events_.reset();
      joins_.reset();
      epoch_base_ = epoch_;
      return tl::unexpected(std::move(ok).error());
    }
    RunStats result;
    result.wall_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    for (size_t r = 0; r < plan_->operand_rows.size(); ++r) {
      StageStats s{plan_->operand_rows[r].name, 0, 0};
      for (const WorkerStats& w : stats_) {
        s.num_tasks += w.tasks[r];
        s.busy_ns += w.busy_ns[r];
      }
      result.stages.push_back(std::move(s));
    }
    return result;
  }

 private:
  struct alignas(64) WorkerStats {
    std::vector<uint32_t> tasks;
    std::vector<double> busy_ns;
    void reset(size_t rows) {
      tasks.assign(rows, 0);
      busy_ns.assign(rows, 0);
    }
  };

  void fill_operands() {
    for (size_t r = 0; r < plan_->operand_rows.size(); ++r) {
      for (size_t s = 0; s < abi::kOperandSlots; ++s) {
        const uint32_t t = plan_->operand_rows[r].tensors[s];
        operands_[r * abi::kOperandSlots + s] = t == kInvalidId ? nullptr : bindings_.tensors()[t].address;
      }
    }
  }

  // Returns when every worker is done, or an error after every worker has left.
  Status watch() {
    std::unique_lock lock(mutex_);
    const auto all_done = [this] { return num_done_ == plan_->num_workers; };
    StallReport last;
    auto last_progress = Clock::now();
    while (!done_.wait_for(lock, std::chrono::milliseconds(20), all_done)) {
      StallReport now = look();
      const auto time = Clock::now();
      const bool same = now.same_places(last);
      if (!same || now.any_running) last_progress = time;
      const bool stuck = same && now.all_waiting && last.all_waiting;
      if (stuck || time - last_progress > options_.timeout) {
        abort_.store(true, std::memory_order_relaxed);
        done_.wait(lock, all_done);
        return tl::unexpected(stall_error(*plan_, now, stuck, options_.timeout));
      }
      last = std::move(now);
    }
    return {};
  }

  StallReport look() const {
    StallReport report;
    report.all_waiting = true;
    for (uint32_t w = 0; w < plan_->num_workers; ++w) {
      StalledWorker s;
      s.phase = states_[w].phase.load(std::memory_order_relaxed);
      s.slot = states_[w].slot.load(std::memory_order_relaxed);
      s.wait_idx = states_[w].wait_idx.load(std::memory_order_relaxed);
      report.any_running = report.any_running || s.phase == WorkerPhase::kRunning;
      if (s.phase == WorkerPhase::kWaiting && s.slot < plan_->queue_depth) {
        const abi::Wait& wait = plan_->instruction(w, s.slot).waits[s.wait_idx % abi::kMaxWaits];
        const uint64_t before = run_offset(wait.event);
        const uint64_t count = events_.peek(wait.event);
        s.actual = count < before ? 0 : count - before;
        if (s.actual >= wait.threshold) report.all_waiting = false;  // about to go on
      } else if (s.phase != WorkerPhase::kDone) {
        report.all_waiting = false;
      }
      report.workers.push_back(s);
    }
    return report;
  }

  // What earlier runs added to an event.
  uint64_t run_offset(uint32_t event) const {
    return (epoch_ - epoch_base_ - 1) * uint64_t{plan_->events[event].total};
  }

  void stop_workers() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    threads_.clear();  // joins
  }

  void worker_main(uint32_t w) {
    uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || epoch_ != seen; });
        if (stop_) return;
        seen = epoch_;
      }
      walk_queue(w, std::span(scratch_[w].get(), scratch_[w].size()));
      {
        const std::lock_guard lock(mutex_);
        ++num_done_;
      }
      done_.notify_one();
    }
  }

  void walk_queue(uint32_t w, std::span<std::byte> scratch) {
    WorkerState& state = states_[w];
    DelayRng rng(options_.seed * 0x2545f4914f6cdd1dULL + w + epoch_ * 0x9e3779b9ULL);
    for (uint32_t slot = 0; slot < plan_->queue_depth; ++slot) {
      const abi::Instruction& instruction = plan_->instruction(w, slot);
      state.slot.store(slot, std::memory_order_relaxed);
      if (instruction.opcode == abi::kOpcodeNoOp) continue;
      if (!wait_inputs(state, instruction)) return;
      state.phase.store(WorkerPhase::kRunning, std::memory_order_relaxed);
      if (options_.randomize) delay(rng);
      execute(w, instruction, scratch);
    }
    state.slot.store(plan_->queue_depth, std::memory_order_relaxed);
    state.phase.store(WorkerPhase::kDone, std::memory_order_relaxed);
  }

  bool wait_inputs(WorkerState& state, const abi::Instruction& instruction) {
    for (uint32_t i = 0; i < abi::num_waits(instruction); ++i) {
      const abi::Wait& wait = instruction.waits[i];
      const uint64_t threshold = wait.threshold + run_offset(wait.event);
      if (events_.reached(wait.event, threshold)) continue;
      state.wait_idx.store(i, std::memory_order_relaxed);
      state.phase.store(WorkerPhase::kWaiting, std::memory_order_relaxed);
      Backoff backoff;
      while (!events_.reached(wait.event, threshold)) {
        if (abort_.load(std::memory_order_relaxed)) return false;
        backoff.pause();
      }
    }
    return true;
  }

  void execute(uint32_t w, const abi::Instruction& instruction, std::span<std::byte> scratch) {
    const bool joins = instruction.join_counter != abi::kNoJoin;
    bool last = !joins;
    const std::function<bool()> join = [&] {
      last = joins_.join(instruction.join_counter, instruction.join_count);
      return last;
    };
    CpuTile tile;
    tile.opcode = instruction.opcode;
    tile.payload = instruction.payload;
    tile.spec = plan_->specs[instruction.spec_id].words;
    tile.operands = &operands_[size_t{instruction.operand_row} * abi::kOperandSlots];
    tile.scratch = scratch;
    tile.join = joins ? &join : nullptr;
    const auto start = options_.collect_stats ? Clock::now() : Clock::time_point{};
    if (instruction.opcode != abi::kOpcodeRelay) families_[instruction.operand_row]->run_tile(tile);
    if (options_.collect_stats) {
      stats_[w].busy_ns[instruction.operand_row] +=
          std::chrono::duration<double, std::nano>(Clock::now() - start).count();
      ++stats_[w].tasks[instruction.operand_row];
    }
    if (!last) return;
    for (uint32_t i = 0; i < abi::num_signals(instruction); ++i) {
      if (options_.randomize && i > 0) std::this_thread::yield();
      events_.signal(instruction.signals[i].event, abi::increment(instruction.signals[i]));
    }
  }

  static void delay(DelayRng& rng) {
    const uint64_t r = rng.next();
    if (r % 4 == 0) std::this_thread::yield();
    if (r % 16 == 1) std::this_thread::sleep_for(std::chrono::microseconds((r >> 8) % 50));
  }

  std::shared_ptr<const KernelPlan> plan_;
  CpuThreadsOptions options_;
  Bindings bindings_;
  AlignedBytes arena_;
  Counters events_;
  Counters joins_;
  std::vector<void*> operands_;
  std::vector<const OpFamily*> families_;
  std::vector<WorkerState> states_;
  std::vector<WorkerStats> stats_;
  std::vector<AlignedBytes> scratch_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  uint64_t epoch_ = 0;       // written under mutex_ while no worker runs
  uint64_t epoch_base_ = 0;  // epochs before this one do not count: the counters were reset
  uint32_t num_done_ = 0;
  bool stop_ = false;
  std::atomic<bool> abort_{false};
  std::vector<std::jthread> threads_;
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
  MEGARTP_TRY(require_proved(*plan));
  return prepare_unproved(std::move(plan), options);
}

Result<std::unique_ptr<Executable>> prepare_unproved(std::shared_ptr<const KernelPlan> plan,
                                                     const CpuThreadsOptions& options) {
  MEGARTP_TRY(check_plan(*plan));
  MEGARTP_TRY(check_threads(*plan));
  AlignedBytes arena(plan->workspace_bytes);
  std::vector<BoundTensor> tensors;
  for (const PlanTensor& t : plan->tensors) {
    const bool external = t.arena_offset == kExternal;
    tensors.push_back(
        {t.name, t.dtype, t.storage, t.num_bytes, external, external ? nullptr : arena.get() + t.arena_offset});
  }
  auto executable = std::make_unique<CpuThreads>(std::move(plan), options, std::move(tensors), std::move(arena));
  MEGARTP_TRY(executable->start());
  return executable;
}

}  // namespace megartp
