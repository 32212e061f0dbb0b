#include "backends/cpu_threads/explore.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "backends/cpu_threads/explore_execution.h"

namespace megartp {
namespace {

// Everything of check_plan but what waits and signals add up to: the queues and events of an explored plan may be
// wrong.
Status check_all_but_order(const KernelPlan& plan) {
  KernelPlan stripped = plan;
  uint32_t num_relays = 0;
  for (abi::Instruction& i : stripped.instructions) {
    if (i.opcode == abi::kOpcodeNoOp) continue;
    if (abi::num_waits(i) > abi::kMaxWaits || abi::num_signals(i) > abi::kMaxSignals)
      return make_error(ErrorCode::kParse,
                        fmt::format("plan: task {} has impossible counts {:#010x}", i.task_id, i.counts));
    for (uint32_t w = 0; w < abi::num_waits(i); ++w)
      if (i.waits[w].event >= plan.events.size())
        return make_error(ErrorCode::kParse,
                          fmt::format("plan: task {} waits for event {}", i.task_id, i.waits[w].event));
    for (uint32_t s = 0; s < abi::num_signals(i); ++s)
      if (i.signals[s].event >= plan.events.size())
        return make_error(ErrorCode::kParse,
                          fmt::format("plan: task {} signals event {}", i.task_id, i.signals[s].event));
    // A relay must wait and signal: one event for all of them.
    const bool is_relay = i.opcode == abi::kOpcodeRelay;
    num_relays += is_relay ? 1 : 0;
    i.counts = abi::make_counts(is_relay ? 1 : 0, is_relay ? 1 : 0, abi::num_payload(i)) | (i.counts & 0xff000000U);
    std::fill(std::begin(i.waits), std::end(i.waits), abi::Wait{});
    std::fill(std::begin(i.signals), std::end(i.signals), abi::Signal{});
    if (is_relay) {
      i.waits[0] = {0, 1};
      i.signals[0] = abi::make_signal(0, 1, 0);
    }
  }
  stripped.events.clear();
  if (num_relays != 0) stripped.events.push_back({num_relays, kInvalidId, 0});
  return check_plan(stripped);
}

// A point of the search: a state of the execution, the worker that goes on there, and what remains to be tried.
struct Node {
  uint64_t enabled = 0;  // workers, as bits
  uint64_t todo = 0;
  uint64_t done = 0;
  uint32_t worker = 0;
  std::vector<uint32_t> early;                    // tasks whose writes the chosen step sees early
  std::vector<std::vector<uint32_t>> more_early;  // to be tried with the same worker
  std::vector<std::vector<uint32_t>> seen_early;  // tried or to be tried
};

class ExplorerImpl final : public Explorer {
 public:
  ExplorerImpl(std::shared_ptr<const KernelPlan> plan, const ExploreOptions& options)
      : plan_(std::move(plan)),
        options_(options),
        arena_(plan_->workspace_bytes),
        bindings_(plan_tensors(*plan_, arena_)),
        execution_(*plan_, bindings_),
        expected_(execution_.layout().num_bytes()) {}

  Status bind(std::string_view tensor, void* data, size_t num_bytes) override {
    return bindings_.bind(tensor, data, num_bytes);
  }
  void* data(std::string_view tensor) const override { return bindings_.address(tensor); }
  void poison() override { bindings_.poison(std::byte{0xff}); }
  const FaultDump* fault() const override { return report_.deadlock.records.empty() ? nullptr : &report_.deadlock; }
  const ExploreReport& report() const override { return report_; }

  Result<RunStats> run() override {
    using Clock = std::chrono::steady_clock;
    MEGARTP_TRY(bindings_.check_complete());
    report_ = {};
    const auto start = Clock::now();
    execution_.run_sequentially(expected_.get());
    search();
    execution_.layout().store(bindings_, expected_.get());
    RunStats stats;
    stats.wall_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    for (const PlanOperandRow& row : plan_->operand_rows) stats.stages.push_back({row.name, 0, 0});
    for (const abi::Instruction& i : plan_->instructions)
      if (i.opcode != abi::kOpcodeNoOp) ++stats.stages[i.operand_row].num_tasks;
    return stats;
  }

 private:
  void search() {
    nodes_.clear();
    do {
      if (report_.num_executions == options_.max_executions) return;
      execute();
      judge();
      add_alternatives();
    } while (choose_next());
    report_.is_complete = true;
  }

  uint64_t enabled_workers() const {
    uint64_t enabled = 0;
    for (uint32_t w = 0; w < plan_->num_workers; ++w)
      if (const auto step = execution_.next(w); step && execution_.is_enabled(*step)) enabled |= uint64_t{1} << w;
    return enabled;
  }

  // Follows the chosen nodes, then always the first worker that can go on.
  void execute() {
    execution_.restart();
    for (size_t depth = 0;; ++depth) {
      if (depth == nodes_.size()) {
        Node node;
        node.enabled = enabled_workers();
        if (node.enabled == 0) break;
        node.worker = static_cast<uint32_t>(std::countr_zero(node.enabled));
        node.todo = options_.all_orders ? node.enabled : uint64_t{1} << node.worker;
        nodes_.push_back(std::move(node));
      }
      execution_.take(*execution_.next(nodes_[depth].worker), nodes_[depth].early);
    }
    ++report_.num_executions;
  }

  void judge() {
    for (uint32_t w = 0; w < plan_->num_workers; ++w) {
      if (!execution_.next(w)) continue;
      ++report_.num_deadlocks;
      report_deadlock();
      return;
    }
    const std::byte* image = execution_.final_image();
    for (size_t t = 0; t < plan_->tensors.size(); ++t) {
      const PlanTensor& tensor = plan_->tensors[t];
      const uint64_t offset = execution_.layout().offset(static_cast<uint32_t>(t));
      if (tensor.storage != Storage::kOutput && tensor.storage != Storage::kState) continue;
      const auto [have, want] =
          std::mismatch(image + offset, image + offset + tensor.num_bytes, expected_.get() + offset);
      if (have == image + offset + tensor.num_bytes) continue;
      ++report_.num_different;
      add_finding(
          fmt::format("execution {}: '{}' differs from byte {} on ({:#04x}, sequential order {:#04x}); order: {}",
                      report_.num_executions, tensor.name, have - (image + offset), std::to_integer<unsigned>(*have),
                      std::to_integer<unsigned>(*want), order_text()));
      return;
    }
  }

  void add_finding(std::string text) {
    if (report_.findings.size() < ExploreReport::kMaxFindings) report_.findings.push_back(std::move(text));
  }

  std::string order_text() const {
    constexpr size_t kShown = 24;
    std::string text;
    const auto& runs = execution_.runs();
    // The end tells more than the beginning, which is the same in most executions.
    const size_t first = runs.size() > kShown ? runs.size() - kShown : 0;
    if (first != 0) text = "...";
    for (size_t r = first; r < runs.size(); ++r)
      text += fmt::format("{}{}@{}{}", text.empty() ? "" : " ", runs[r].task, runs[r].worker,
                          runs[r].has_early ? "(early)" : "");
    return text;
  }

  void report_deadlock() {
    FaultDump dump = make_fault_dump(*plan_);
    for (uint32_t w = 0; w < plan_->num_workers; ++w) dump.records.push_back(fault_record(w));
    const auto explained = explain_fault(dump, plan_.get());
    add_finding(fmt::format("execution {}: deadlock: {}", report_.num_executions,
                            explained ? explained->sentence : explained.error().message));
    if (report_.deadlock.records.empty()) report_.deadlock = std::move(dump);
  }

  abi::FaultRecord fault_record(uint32_t worker) const {
    abi::FaultRecord r = abi::make_fault_record();
    r.worker = worker;
    r.epoch = 1;
    const auto step = execution_.next(worker);
    if (!step) {
      r.phase = abi::kFaultPhaseDone;
      return r;
    }
    const abi::Instruction& i = execution_.instruction_of(step->task);
    r.kind = abi::kFaultDeadlock;
    r.phase = abi::kFaultPhaseWaiting;
    r.task_id = step->task;
    r.opcode = i.opcode;
    r.operand_row = i.operand_row;
    for (uint32_t s = 0; s < plan_->queue_depth; ++s)
      if (&plan_->instruction(worker, s) == &i) r.slot = s;
    for (uint32_t w = step->first_wait; w < step->end_wait; ++w) {
      if (execution_.count(i.waits[w].event) >= i.waits[w].threshold) continue;
      r.wait_idx = w;
      r.event = i.waits[w].event;
      r.expected = i.waits[w].threshold;
      r.actual = execution_.count(r.event);
      break;
    }
    for (uint32_t t = 0; t < plan_->num_tasks && r.missing_task == abi::kFaultNone; ++t) {
      const abi::Instruction& other = execution_.instruction_of(t);
      if (execution_.has_run(t)) continue;
      for (uint32_t s = 0; s < abi::num_signals(other); ++s)
        if (other.signals[s].event == r.event) r.missing_task = t;
    }
    if (r.missing_task != abi::kFaultNone) r.missing_state = abi::kFaultMissingNotStarted;
    for (size_t n = 0; r.missing_task != abi::kFaultNone && n < plan_->instructions.size(); ++n) {
      if (plan_->instructions[n].task_id != r.missing_task) continue;
      r.missing_worker = static_cast<uint32_t>(n / plan_->queue_depth);
      r.missing_slot = static_cast<uint32_t>(n % plan_->queue_depth);
    }
    return r;
  }

  // --- what else could happen ---

  void add_alternatives() {
    add_join_orders();
    add_wait_orders();
    add_races();
  }

  // Lets `worker` go before the step that was taken at `step`.
  void try_before(size_t step, uint32_t worker) {
    Node& node = nodes_[step];
    const uint64_t bit = uint64_t{1} << worker;
    node.todo |= (node.enabled & bit) != 0 ? bit : node.enabled;
  }

  // Who comes last at a join finalizes: each arrival that nothing puts before the last one could have been it.
  void add_join_orders() {
    const auto& runs = execution_.runs();
    for (size_t n = 0; n < runs.size(); ++n) {
      const uint32_t join = execution_.instruction_of(runs[n].task).join_counter;
      if (join == abi::kNoJoin || !runs[n].is_last) continue;
      for (size_t i = 0; i < n; ++i)
        if (execution_.instruction_of(runs[i].task).join_counter == join && runs[i].worker != runs[n].worker &&
            !runs[n].before.has(i))
          try_before(runs[i].step, runs[n].worker);
    }
  }

  // A wait that needs only some of an event's signals sees those that came before it, or more.
  void add_wait_orders() {
    const auto& runs = execution_.runs();
    for (const ExecutedWait& wait : execution_.waits()) {
      for (size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].worker == wait.worker) continue;
        const abi::Instruction& instruction = execution_.instruction_of(runs[i].task);
        for (uint32_t s = 0; runs[i].is_last && s < abi::num_signals(instruction); ++s) {
          if (instruction.signals[s].event != wait.event) continue;
          if (runs[i].step < wait.step) {
            // Others' signals would have done: perhaps some that came after this one.
            const bool is_enough = wait.count - abi::increment(instruction.signals[s]) >= wait.threshold;
            if (is_enough && !wait.before.has(i)) try_before(runs[i].step, wait.worker);
          } else if (!follows(runs[i], wait.task)) {
            try_before(wait.step, runs[i].worker);
          }
        }
      }
    }
  }

  // Does the run come after the end of `task`?
  bool follows(const ExecutedRun& run, uint32_t task) const {
    const auto& runs = execution_.runs();
    for (size_t r = 0; r < runs.size(); ++r)
      if (runs[r].task == task) return run.before.has(r);
    return false;
  }

  void add_races() {
    const auto& runs = execution_.runs();
    for (size_t r = 0; r < runs.size(); ++r) {
      std::vector<size_t> unordered;
      for (size_t x = 0; x < runs.size(); ++x)
        if (runs[x].worker != runs[r].worker && !runs[r].view.has(x) && !runs[x].view.has(r) &&
            !runs[x].writes.ranges.empty())
          unordered.push_back(x);
      if (unordered.empty()) continue;
      add_write_races(r, unordered);
      // All at once first: in a sound plan none of them matters.
      if (execution_.would_differ(runs[r], unordered)) add_read_races(r, unordered);
    }
  }

  void add_write_races(size_t r, const std::vector<size_t>& unordered) {
    const auto& runs = execution_.runs();
    for (const size_t x : unordered) {
      if (x > r || !clash(runs[x].writes, runs[r].writes)) continue;
      add_race({runs[x].task, runs[r].task, true});
      try_before(runs[x].step, runs[r].worker);
    }
  }

  void add_read_races(size_t r, const std::vector<size_t>& unordered) {
    const auto& runs = execution_.runs();
    std::vector<uint32_t> earlier;
    for (const size_t x : unordered) {
      if (!execution_.would_differ(runs[r], {x})) continue;
      add_race({runs[x].task, runs[r].task, false});
      if (x > r) {
        try_before(runs[r].step, runs[x].worker);
      } else {
        earlier.push_back(runs[x].task);
      }
    }
    for (const uint32_t task : earlier) add_early(runs[r].step, {task});
    if (earlier.size() > 1) add_early(runs[r].step, earlier);
  }

  void add_early(size_t step, std::vector<uint32_t> tasks) {
    Node& node = nodes_[step];
    for (const uint32_t task : node.early) tasks.push_back(task);
    std::ranges::sort(tasks);
    if (std::ranges::find(node.seen_early, tasks) != node.seen_early.end()) return;
    node.seen_early.push_back(tasks);
    node.more_early.push_back(std::move(tasks));
  }

  void add_race(const ExploreRace& race) {
    constexpr size_t kMaxRaces = 256;
    if (report_.races.size() < kMaxRaces && std::ranges::find(report_.races, race) == report_.races.end())
      report_.races.push_back(race);
  }

  // Goes back to the last node with something to try; false: nothing is left.
  bool choose_next() {
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      if (!node.more_early.empty()) {
        node.early = std::move(node.more_early.back());
        node.more_early.pop_back();
        return true;
      }
      node.done |= uint64_t{1} << node.worker;
      if (const uint64_t left = node.todo & ~node.done; left != 0) {
        node.worker = static_cast<uint32_t>(std::countr_zero(left));
        node.early.clear();
        node.seen_early.clear();
        return true;
      }
      nodes_.pop_back();
    }
    return false;
  }

  std::shared_ptr<const KernelPlan> plan_;
  ExploreOptions options_;
  AlignedBytes arena_;
  Bindings bindings_;
  Execution execution_;
  AlignedBytes expected_;
  std::vector<Node> nodes_;
  ExploreReport report_;
};

}  // namespace

Result<std::unique_ptr<Explorer>> prepare_explorer(std::shared_ptr<const KernelPlan> plan,
                                                   const ExploreOptions& options) {
  if (plan->num_workers > kMaxExploreWorkers || plan->num_tasks > kMaxExploreTasks)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("explore: the plan has {} workers and {} tasks; at most {} and {} are explored",
                                  plan->num_workers, plan->num_tasks, kMaxExploreWorkers, kMaxExploreTasks));
  MEGARTP_TRY(check_all_but_order(*plan));
  if (const uint64_t bytes = ImageLayout(*plan).num_bytes(); bytes > kMaxExploreBytes)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("explore: the plan writes tensors of {} bytes; at most {} are "
                                  "explored",
                                  bytes, kMaxExploreBytes));
  return std::make_unique<ExplorerImpl>(std::move(plan), options);
}

std::string describe(const ExploreReport& report) {
  return fmt::format("{} {} ({}): {} {}, {} with outputs other than in sequential order", report.num_executions,
                     report.num_executions == 1 ? "execution" : "executions",
                     report.is_complete ? "all that can differ" : "there are more", report.num_deadlocks,
                     report.num_deadlocks == 1 ? "deadlock" : "deadlocks", report.num_different);
}

std::string describe(const ExploreRace& race, const KernelPlan& plan) {
  const auto label = [&](uint32_t task) {
    for (const abi::Instruction& i : plan.instructions)
      if (i.opcode != abi::kOpcodeNoOp && i.task_id == task)
        return fmt::format("task {} of {}", task, plan.operand_rows[i.operand_row].name);
    return fmt::format("task {}", task);
  };
  return fmt::format("{} writes what {} {}, and nothing orders them", label(race.writer), label(race.other),
                     race.both_write ? "writes too" : "reads");
}

}  // namespace megartp
