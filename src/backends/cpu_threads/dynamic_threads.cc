#include "backends/cpu_threads/dynamic_threads.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "backends/cpu_threads/dispatch_table.h"
#include "backends/cpu_threads/rings.h"
#include "backends/cpu_threads/stall_report.h"
#include "backends/cpu_threads/thread_team.h"

namespace megartp {
namespace {

// All queues of one executable. They are empty between runs; after a failed run they are made anew.
struct Queues {
  Queues(uint32_t num_workers, uint32_t num_schedulers, uint32_t entries, uint32_t num_tasks)
      : broadcast(entries, num_schedulers), arrivals(num_tasks) {
    for (uint32_t w = 0; w < num_workers; ++w) {
      ahead.push_back(std::make_unique<Ring<uint32_t>>(entries));
      ready.push_back(std::make_unique<Ring<uint32_t>>(entries));
    }
    for (uint32_t s = 0; s < num_schedulers; ++s) milestones.push_back(std::make_unique<Ring<uint32_t>>(entries));
  }
  std::vector<std::unique_ptr<Ring<uint32_t>>> ahead, ready;  // of workers: tasks
  std::vector<std::unique_ptr<Ring<uint32_t>>> milestones;    // of schedulers: index into DispatchTable::milestones
  BroadcastRing<uint32_t> broadcast;                          // the same
  std::vector<std::atomic<uint32_t>> arrivals;                // of tasks: milestones that have come, over all runs
};

class DynamicThreads final : public ThreadsExecutable {
 public:
  DynamicThreads(std::shared_ptr<const KernelPlan> plan, const CpuThreadsOptions& options, uint32_t num_schedulers)
      : ThreadsExecutable(std::move(plan), options),
        num_schedulers_(num_schedulers),
        table_(runtime_.plan(), options.dispatch, num_schedulers) {
    make_queues();
  }
  ~DynamicThreads() override { team_.stop(); }

  Status start() {
    MEGARTP_TRY(make_scratch());
    const uint32_t workers = plan().num_workers;
    return team_.start(workers + num_schedulers_, [this, workers](uint32_t i) {
      if (i < workers)
        work(i);
      else
        schedule(i - workers);
    });
  }

 private:
  void make_queues() {
    queues_ = std::make_unique<Queues>(plan().num_workers, num_schedulers_, runtime_.options().ring_entries,
                                       plan().num_tasks);
  }

  Status run_round() override {
    tasks_left_.store(plan().num_tasks, std::memory_order_relaxed);
    is_broken_.store(false, std::memory_order_relaxed);
    team_.begin_round();
    Status ok = watch(
        team_, runtime_, [this] { return look(); }, [this] { abort_.store(true, std::memory_order_relaxed); }, dump_);
    if (ok && is_broken_.load(std::memory_order_relaxed))
      ok = make_error(ErrorCode::kInternal, "cpu-threads: the dynamic scheduler released a task before its events");
    if (!ok) make_queues();
    return ok;
  }

  // --- workers ---

  // A task that a worker has, and since when (0 unless is_recording()).
  struct VisibleTask {
    uint32_t task = 0;
    uint64_t visible_ns = 0;
  };

  void work(uint32_t w) {
    WorkerState& state = states_[w];
    DelayRng rng(runtime_.options().seed * 0x2545f4914f6cdd1dULL + w + runtime_.epoch() * 0x9e3779b9ULL);
    std::array<VisibleTask, kLookAhead> window{};
    uint32_t in_window = 0;
    Backoff backoff;
    while (!abort_.load(std::memory_order_relaxed)) {
      std::optional<VisibleTask> task;
      if (const std::optional<uint32_t> released = queues_->ready[w]->try_pop()) {
        task = {*released, is_recording() ? trace_clock_ns() : 0};
        // acquire loads: what the events' signallers wrote is seen (the queues order it as well).
        if (runtime_.first_unreached(*released)) {
          is_broken_.store(true, std::memory_order_relaxed);
          abort_.store(true, std::memory_order_relaxed);
          return;
        }
      } else {
        for (; in_window < kLookAhead; ++in_window) {
          const std::optional<uint32_t> next = queues_->ahead[w]->try_pop();
          if (!next) break;
          window[in_window] = {*next, is_recording() ? trace_clock_ns() : 0};
        }
        task = take_reached(window, in_window);
      }
      if (task) {
        run_task(w, *task, rng);
        backoff = {};
        continue;
      }
      // acquire: pairs with the release in run_task; whoever sees the end of the run sees all its results.
      if (tasks_left_.load(std::memory_order_acquire) == 0) break;
      tell(state, window, in_window);
      backoff.pause();
    }
    if (!abort_.load(std::memory_order_relaxed)) state.phase.store(WorkerPhase::kDone, std::memory_order_relaxed);
  }

  // The first task of the window that waits for nothing any more leaves it.
  std::optional<VisibleTask> take_reached(std::array<VisibleTask, kLookAhead>& window, uint32_t& in_window) const {
    for (uint32_t i = 0; i < in_window; ++i) {
      if (runtime_.first_unreached(window[i].task)) continue;
      const VisibleTask task = window[i];
      std::copy(window.begin() + i + 1, window.begin() + in_window, window.begin() + i);
      --in_window;
      return task;
    }
    return std::nullopt;
  }

  void tell(WorkerState& state, const std::array<VisibleTask, kLookAhead>& window, uint32_t in_window) const {
    const std::optional<uint32_t> wait = in_window == 0 ? std::nullopt : runtime_.first_unreached(window[0].task);
    if (!wait) {
      state.phase.store(WorkerPhase::kIdle, std::memory_order_relaxed);
      return;
    }
    state.task.store(window[0].task, std::memory_order_relaxed);
    state.wait_idx.store(*wait, std::memory_order_relaxed);
    state.phase.store(WorkerPhase::kWaiting, std::memory_order_relaxed);
  }

  void run_task(uint32_t w, VisibleTask held, DelayRng& rng) {
    WorkerState& state = states_[w];
    const auto [task, visible_ns] = held;
    state.task.store(task, std::memory_order_relaxed);
    state.phase.store(WorkerPhase::kRunning, std::memory_order_relaxed);
    if (runtime_.options().randomize) rng.delay();
    const abi::Instruction& instruction = runtime_.instruction_of(task);
    const PlanRuntime::Crossed crossed = [this, w](uint32_t event, uint64_t before, uint64_t after) {
      for (const Milestone& m : table_.milestones_of(event))
        if (before < m.threshold && m.threshold <= after)
          publish(w, static_cast<uint32_t>(&m - table_.milestones.data()));
    };
    const uint32_t slot = state.slot.load(std::memory_order_relaxed);
    count(w, slot, instruction, visible_ns, runtime_.execute(instruction, scratch(w), &crossed));
    state.slot.fetch_add(1, std::memory_order_relaxed);
    state.phase.store(WorkerPhase::kIdle, std::memory_order_relaxed);
    // release: pairs with the acquire of whoever sees zero.
    tasks_left_.fetch_sub(1, std::memory_order_acq_rel);
  }

  // Back-pressure: waits for room. Schedulers always drain, so there will be some.
  void publish(uint32_t w, uint32_t milestone) {
    const bool to_all = table_.milestones[milestone].num_consumers >= DispatchTable::kBroadcastConsumers;
    Backoff backoff;
    while (!(to_all ? queues_->broadcast.try_push(milestone)
                    : queues_->milestones[table_.scheduler_of(w)]->try_push(milestone))) {
      if (abort_.load(std::memory_order_relaxed)) return;
      backoff.pause();
    }
  }

  // --- schedulers ---

  struct Scheduler {
    uint32_t id = 0;
    uint32_t first_worker = 0, end_worker = 0;
    std::vector<size_t> next_ahead;  // of each of its workers: position in DispatchTable::ahead
    std::deque<uint32_t> ready;      // released, but no ring had room yet; at most all tasks
    uint32_t turn = 0;
  };

  void schedule(uint32_t id) {
    Scheduler s;
    s.id = id;
    s.first_worker = std::min(id * table_.workers_per_scheduler, plan().num_workers);
    s.end_worker = std::min(s.first_worker + table_.workers_per_scheduler, plan().num_workers);
    s.next_ahead.assign(s.end_worker - s.first_worker, 0);
    Backoff backoff;
    while (!abort_.load(std::memory_order_relaxed)) {
      // Nothing is published after the last task is counted down: a round without work that starts later is the last.
      const bool is_over = tasks_left_.load(std::memory_order_acquire) == 0;
      bool worked = hand_out_ahead(s);
      worked = read_milestones(s) || worked;
      worked = hand_out_ready(s) || worked;
      if (worked) {
        activity_.fetch_add(1, std::memory_order_relaxed);
        backoff = {};
        continue;
      }
      if (is_over) return;
      backoff.pause();
    }
  }

  bool hand_out_ahead(Scheduler& s) {
    bool worked = false;
    for (uint32_t w = s.first_worker; w < s.end_worker; ++w) {
      size_t& next = s.next_ahead[w - s.first_worker];
      for (; next < table_.ahead[w].size() && queues_->ahead[w]->try_push(table_.ahead[w][next]); ++next) worked = true;
    }
    return worked;
  }

  bool read_milestones(Scheduler& s) {
    bool worked = false;
    while (const std::optional<uint32_t> m = queues_->milestones[s.id]->try_pop()) {
      release(s, table_.consumers_of(table_.milestones[*m]));
      worked = true;
    }
    while (const std::optional<uint32_t> m = queues_->broadcast.try_read(s.id)) {
      const auto all = table_.consumers_of(table_.milestones[*m]);
      const size_t begin = all.size() * s.id / num_schedulers_;
      const size_t end = all.size() * (s.id + 1) / num_schedulers_;
      release(s, all.subspan(begin, end - begin));
      worked = true;
    }
    return worked;
  }

  void release(Scheduler& s, std::span<const uint32_t> tasks) {
    for (const uint32_t t : tasks) {
      const uint32_t waits = abi::num_waits(runtime_.instruction_of(t));
      // acq_rel: the scheduler that brings the last milestone has seen what the others' publishers wrote.
      if ((queues_->arrivals[t].fetch_add(1, std::memory_order_acq_rel) + 1) % waits == 0) s.ready.push_back(t);
    }
  }

  // Each to the worker of its own with the fewest tasks, in turn where several are equal.
  bool hand_out_ready(Scheduler& s) {
    bool worked = false;
    const uint32_t num = s.end_worker - s.first_worker;
    while (!s.ready.empty()) {
      uint32_t best = s.first_worker + s.turn % num;
      for (uint32_t i = 1; i < num; ++i) {
        const uint32_t w = s.first_worker + (s.turn + i) % num;
        if (queues_->ready[w]->size_hint() < queues_->ready[best]->size_hint()) best = w;
      }
      if (!queues_->ready[best]->try_push(s.ready.front())) break;
      s.ready.pop_front();
      ++s.turn;
      worked = true;
    }
    return worked;
  }

  // --- watchdog ---

  StallReport look() const {
    const uint64_t activity = activity_.load(std::memory_order_relaxed);
    StallReport report = look_at_tasks(runtime_, states_, table_.order);
    report.activity = activity;
    return report;
  }

  uint32_t num_schedulers_;
  DispatchTable table_;
  std::unique_ptr<Queues> queues_;
  std::atomic<uint32_t> tasks_left_{0};
  std::atomic<uint64_t> activity_{0};
  std::atomic<bool> is_broken_{false};
  ThreadTeam team_;
};

}  // namespace

Result<std::unique_ptr<Executable>> prepare_dynamic_threads(std::shared_ptr<const KernelPlan> plan,
                                                            const CpuThreadsOptions& options) {
  constexpr uint32_t kMaxRingEntries = 1U << 20;
  if (!std::has_single_bit(options.ring_entries) || options.ring_entries < 2 || options.ring_entries > kMaxRingEntries)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cpu-threads: queues of {} entries; a power of two from 2 to {} is needed",
                                  options.ring_entries, kMaxRingEntries));
  const uint32_t asked = options.num_schedulers != 0 ? options.num_schedulers : (plan->num_workers + 7) / 8;
  if (asked > plan->num_workers)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cpu-threads: {} schedulers for {} workers", asked, plan->num_workers));
  // Groups are of equal size but for the last: with 5 workers, 4 schedulers would leave one without any.
  const uint32_t group = (plan->num_workers + asked - 1) / asked;
  const uint32_t num_schedulers = (plan->num_workers + group - 1) / group;
  auto executable = std::make_unique<DynamicThreads>(std::move(plan), options, num_schedulers);
  MEGARTP_TRY(executable->start());
  return executable;
}

}  // namespace megartp
