#include "backends/cpu_threads/explore_execution.h"

namespace megartp {

Execution::Execution(const KernelPlan& plan, const Bindings& bindings)
    : plan_(plan),
      bindings_(bindings),
      layout_(plan),
      operands_(plan),
      base_(layout_.num_bytes()),
      image_(layout_.num_bytes()),
      before_(layout_.num_bytes()),
      scratch_(kCpuScratchBytes),
      instruction_of_(plan.num_tasks),
      sums_(plan.events.size()) {
  std::vector<bool> is_counted(plan.join_counts.size());
  for (const abi::Instruction& i : plan.instructions) {
    if (i.opcode == abi::kOpcodeNoOp) continue;
    instruction_of_[i.task_id] = &i;
    if (i.join_counter != abi::kNoJoin) {
      if (is_counted[i.join_counter]) continue;  // one arriver signals for its group
      is_counted[i.join_counter] = true;
    }
    for (uint32_t s = 0; s < abi::num_signals(i); ++s) sums_[i.signals[s].event] += abi::increment(i.signals[s]);
  }
}

void Execution::restart() {
  layout_.load(bindings_, base_.get());
  operands_.fill(plan_, [this](uint32_t t) -> void* {
    return layout_.offset(t) == ImageLayout::kNotInside ? bindings_.tensors()[t].address
                                                        : image_.get() + layout_.offset(t);
  });
  const RunSet none(plan_.num_tasks);
  num_steps_ = 0;
  queues_.assign(plan_.num_workers, {0, 0, none});
  counts_.assign(plan_.events.size(), 0);
  event_views_.assign(plan_.events.size(), none);
  join_views_.assign(plan_.join_counts.size(), none);
  arrivals_.assign(plan_.join_counts.size(), 0);
  run_of_.assign(plan_.num_tasks, kNotRun);
  runs_.clear();
  waits_.clear();
  for (uint32_t w = 0; w < plan_.num_workers; ++w) skip_noops(w);
}

void Execution::skip_noops(uint32_t worker) {
  Queue& q = queues_[worker];
  while (q.slot < plan_.queue_depth && plan_.instruction(worker, q.slot).opcode == abi::kOpcodeNoOp) ++q.slot;
}

std::optional<ExploreStep> Execution::next(uint32_t worker) const {
  const Queue& q = queues_[worker];
  if (q.slot >= plan_.queue_depth) return std::nullopt;
  const abi::Instruction& i = plan_.instruction(worker, q.slot);
  ExploreStep step{worker, i.task_id, q.wait, abi::num_waits(i), true};
  for (uint32_t w = q.wait; w < abi::num_waits(i); ++w) {
    if (i.waits[w].threshold >= sums_[i.waits[w].event]) continue;
    step.end_wait = w + 1;
    step.runs = false;
    break;
  }
  return step;
}

bool Execution::is_enabled(const ExploreStep& step) const {
  const abi::Instruction& i = *instruction_of_[step.task];
  for (uint32_t w = step.first_wait; w < step.end_wait; ++w)
    if (counts_[i.waits[w].event] < i.waits[w].threshold) return false;
  return true;
}

void Execution::take(const ExploreStep& step, std::span<const uint32_t> early) {
  Queue& q = queues_[step.worker];
  const abi::Instruction& i = *instruction_of_[step.task];
  const size_t position = num_steps_++;
  if (!step.runs) {
    const abi::Wait& wait = i.waits[step.end_wait - 1];
    waits_.push_back({step.worker, step.task, position, wait.event, wait.threshold, counts_[wait.event], q.view});
  }
  for (uint32_t w = step.first_wait; w < step.end_wait; ++w) q.view.add(event_views_[i.waits[w].event]);
  q.wait = step.end_wait;
  if (!step.runs) return;

  const size_t index = runs_.size();
  ExecutedRun run{step.task, step.worker, position, q.view, q.view, RunSet(plan_.num_tasks), false, true, {}};
  for (const uint32_t task : early) {
    run.early.add(run_of_[task]);
    run.has_early = true;
  }
  const bool joins = i.join_counter != abi::kNoJoin;
  if (joins) {
    run.is_last = ++arrivals_[i.join_counter] % i.join_count == 0;
    if (run.is_last) run.view.add(join_views_[i.join_counter]);
  }
  run_tile(run, nullptr, &run.writes);
  q.view = run.view;
  q.view.add(index);
  if (joins) join_views_[i.join_counter].add(q.view);
  for (uint32_t s = 0; run.is_last && s < abi::num_signals(i); ++s) {
    const uint32_t event = i.signals[s].event;
    counts_[event] += abi::increment(i.signals[s]);
    event_views_[event].add(q.view);
  }
  run_of_[step.task] = index;
  runs_.push_back(std::move(run));
  ++q.slot;
  q.wait = 0;
  skip_noops(step.worker);
}

void Execution::build(const RunSet& view, const RunSet* early, const std::vector<size_t>* also) {
  std::memcpy(image_.get(), base_.get(), layout_.num_bytes());
  // In the order in which the writes happened: that of two writes to one byte the later one stands.
  for (size_t r = 0; r < runs_.size(); ++r) {
    bool is_seen = view.has(r) || (early != nullptr && early->has(r));
    for (size_t k = 0; also != nullptr && k < also->size(); ++k) is_seen = is_seen || (*also)[k] == r;
    if (is_seen) runs_[r].writes.apply(image_.get());
  }
}

// Runs the tile on what it sees; image_ is then what it left. `out` gets its writes.
void Execution::run_tile(const ExecutedRun& run, const std::vector<size_t>* also, Writes* out) {
  const uint64_t num_bytes = layout_.num_bytes();
  const abi::Instruction& i = *instruction_of_[run.task];
  Writes writes;
  const std::function<bool()> join = [&] {
    if (!run.is_last) return false;
    // What was written so far stays on top of what the arrival lets it see.
    writes.add_difference(before_.get(), image_.get(), num_bytes);
    build(run.view, &run.early, also);
    writes.apply(image_.get());
    std::memcpy(before_.get(), image_.get(), num_bytes);
    return true;
  };
  build(run.before, &run.early, also);
  std::memcpy(before_.get(), image_.get(), num_bytes);
  operands_.run_tile(plan_, i, {scratch_.get(), scratch_.size()}, i.join_counter != abi::kNoJoin ? &join : nullptr);
  if (out == nullptr) return;
  writes.add_difference(before_.get(), image_.get(), num_bytes);
  *out = std::move(writes);
}

bool Execution::would_differ(const ExecutedRun& run, const std::vector<size_t>& seen) {
  run_tile(run, &seen, nullptr);
  // Unaffected: the same as its recorded writes on top of what it would have seen.
  std::memcpy(before_.get(), image_.get(), layout_.num_bytes());
  build(run.view, &run.early, &seen);
  run.writes.apply(image_.get());
  return std::memcmp(before_.get(), image_.get(), layout_.num_bytes()) != 0;
}

const std::byte* Execution::final_image() {
  std::memcpy(image_.get(), base_.get(), layout_.num_bytes());
  for (const ExecutedRun& run : runs_) run.writes.apply(image_.get());
  return image_.get();
}

void Execution::run_sequentially(std::byte* image) {
  restart();
  std::memcpy(image_.get(), base_.get(), layout_.num_bytes());
  for (uint32_t t = 0; t < plan_.num_tasks; ++t) {
    const abi::Instruction& i = *instruction_of_[t];
    const std::function<bool()> join = [&] { return ++arrivals_[i.join_counter] % i.join_count == 0; };
    operands_.run_tile(plan_, i, {scratch_.get(), scratch_.size()}, i.join_counter != abi::kNoJoin ? &join : nullptr);
  }
  std::memcpy(image, image_.get(), layout_.num_bytes());
}

}  // namespace megartp
