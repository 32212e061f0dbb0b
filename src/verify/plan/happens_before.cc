#include "verify/plan/happens_before.h"

#include <algorithm>

namespace megartp::verify {
namespace {

void raise(uint32_t* to, const uint32_t* from, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

HappensBefore::HappensBefore(const PlanNodes& nodes, std::vector<uint32_t> last_publication,
                             std::vector<bool> ignored_events)
    : nodes_(&nodes),
      last_publication_(std::move(last_publication)),
      is_ignored_(std::move(ignored_events)),
      num_workers_(nodes.plan.num_workers) {
  is_ignored_.resize(nodes.plan.events.size(), false);
  uint32_t publications = 1;
  for (const uint32_t p : last_publication_) publications = std::max(publications, p + 1);
  levels_ = publications + (nodes.num_groups > 0 ? 1 : 0);
  clocks_.assign(size_t{nodes.num_nodes()} * num_workers_, kTop);
}

uint32_t HappensBefore::task_position(uint32_t task, uint32_t publication) const {
  const abi::Instruction& i = nodes_->instruction(task);
  if (i.join_counter != abi::kNoJoin) return base(task) + 1;
  return base(task) + (publication < last_publication_[i.operand_row] ? publication + 1 : levels_);
}

uint32_t HappensBefore::group_position(uint32_t member, uint32_t publication) const {
  const uint32_t last = last_publication_[nodes_->instruction(member).operand_row];
  return base(member) + (publication < last ? publication + 2 : levels_);
}

bool HappensBefore::is_before(uint32_t node, uint32_t publication, uint32_t later) const {
  const std::span<const uint32_t> c = clock(later);
  if (!nodes_->is_group(node)) return c[nodes_->worker(node)] >= task_position(node, publication);
  return std::ranges::all_of(nodes_->members_of(node - nodes_->num_tasks), [&](uint32_t member) {
    return c[nodes_->worker(member)] >= group_position(member, publication);
  });
}

// What is over once a node has sent a publication.
void HappensBefore::done_clock(uint32_t node, uint32_t publication, uint32_t* out) const {
  std::copy_n(clocks_.data() + size_t{node} * num_workers_, num_workers_, out);
  const auto over = [&](uint32_t task, uint32_t position) {
    uint32_t& at = out[nodes_->worker(task)];
    at = std::max(at, position);
  };
  if (!nodes_->is_group(node)) return over(node, task_position(node, publication));
  for (const uint32_t m : nodes_->members_of(node - nodes_->num_tasks)) over(m, group_position(m, publication));
}

bool HappensBefore::run() {
  // Passes are needed only where a wait may be satisfied before all signallers have run; a chain of n such waits takes
  // n of them. A plan of ours takes one.
  const uint32_t max_passes = nodes_->num_tasks <= 4096 ? nodes_->num_nodes() + 2 : 64;
  do {
    if (num_passes_ == max_passes) {
      is_undecided_ = true;
      return false;
    }
    pass();
    ++num_passes_;
    if (!stuck_.empty()) return false;
  } while (has_guessed_ && has_changed_);
  return true;
}

void HappensBefore::pass() {
  const KernelPlan& plan = nodes_->plan;
  const size_t num_events = plan.events.size();
  worker_clocks_.assign(size_t{num_workers_} * num_workers_, 0);
  event_clocks_.assign(num_events * num_workers_, 0);
  arrived_.assign(num_events, 0);
  joined_.assign(nodes_->num_groups, 0);
  blocked_.assign(num_events, {});
  lowest_blocked_.assign(num_events, ~uint64_t{0});
  next_slot_.assign(num_workers_, 0);
  started_.assign(nodes_->num_tasks, false);
  stuck_.clear();
  has_guessed_ = has_changed_ = false;
  ready_.clear();
  for (uint32_t w = num_workers_; w-- > 0;) ready_.push_back(w);
  scratch_.resize(num_workers_);
  while (!ready_.empty()) {
    const uint32_t w = ready_.back();
    ready_.pop_back();
    while (next_slot_[w] < plan.queue_depth && try_start(w)) {
      const abi::Instruction& i = plan.instruction(w, next_slot_[w]++);
      if (i.opcode != abi::kOpcodeNoOp) finish(i.task_id);
    }
  }
  for (uint32_t w = 0; w < num_workers_; ++w) {
    if (next_slot_[w] == plan.queue_depth) continue;
    const abi::Instruction& i = plan.instruction(w, next_slot_[w]);
    uint32_t wait = 0;
    while (wait + 1 < abi::num_waits(i) && arrived_[i.waits[wait].event] >= i.waits[wait].threshold) ++wait;
    stuck_.push_back({w, i.task_id, wait});
  }
}

// Gives the worker's next instruction its clock; false: it has to wait, and the event knows.
bool HappensBefore::try_start(uint32_t w) {
  const abi::Instruction& i = nodes_->plan.instruction(w, next_slot_[w]);
  if (i.opcode == abi::kOpcodeNoOp) return true;
  for (uint32_t k = 0; k < abi::num_waits(i); ++k) {
    const abi::Wait& wait = i.waits[k];
    if (arrived_[wait.event] >= wait.threshold || is_ignored_[wait.event]) continue;
    blocked_[wait.event].push_back({w, wait.threshold});
    lowest_blocked_[wait.event] = std::min<uint64_t>(lowest_blocked_[wait.event], wait.threshold);
    return false;
  }
  uint32_t* clock = row(worker_clocks_, w);
  for (uint32_t k = 0; k < abi::num_waits(i); ++k)
    if (!is_ignored_[i.waits[k].event]) add_wait(i.waits[k], clock);
  clock[w] = std::max(clock[w], next_slot_[w] * levels_);
  uint32_t* stored = row(clocks_, i.task_id);
  if (!std::equal(clock, clock + num_workers_, stored)) {
    has_changed_ = true;
    std::copy_n(clock, num_workers_, stored);
  }
  started_[i.task_id] = true;
  return true;
}

void HappensBefore::add_wait(const abi::Wait& wait, uint32_t* clock) {
  if (wait.threshold == nodes_->signal_sums[wait.event])
    return raise(clock, row(event_clocks_, wait.event), num_workers_);
  // Some signals may be missing: worker v is certainly at the position that the signals below it cannot make up for.
  const std::span<const Signaller> signallers = nodes_->signallers_of(wait.event);
  std::vector<uint32_t> done(signallers.size() * num_workers_);
  for (size_t s = 0; s < signallers.size(); ++s)
    done_clock(signallers[s].node, signallers[s].publication, done.data() + s * num_workers_);
  if (arrived_[wait.event] < nodes_->signal_sums[wait.event]) has_guessed_ = true;
  std::vector<std::pair<uint32_t, uint32_t>> order(signallers.size());  // position, increment
  for (uint32_t v = 0; v < num_workers_; ++v) {
    for (size_t s = 0; s < signallers.size(); ++s) order[s] = {done[s * num_workers_ + v], signallers[s].increment};
    std::ranges::sort(order);
    uint64_t sum = 0;
    for (const auto& [position, increment] : order) {
      sum += increment;
      if (sum < wait.threshold) continue;
      clock[v] = std::max(clock[v], position);
      break;
    }
  }
}

void HappensBefore::finish(uint32_t task) {
  const abi::Instruction& i = nodes_->instruction(task);
  uint32_t* clock = row(worker_clocks_, nodes_->worker(task));
  if (i.join_counter == abi::kNoJoin) {
    send(task, i);
  } else {
    // The group's clock grows in its place among the nodes' clocks; until all have joined it is not looked at.
    const uint32_t node = nodes_->num_tasks + i.join_counter;
    const std::span<const uint32_t> members = nodes_->members_of(i.join_counter);
    if (++joined_[i.join_counter] == members.size()) {
      std::fill(scratch_.begin(), scratch_.end(), 0);
      for (const uint32_t m : members) {
        raise(scratch_.data(), row(clocks_, m), num_workers_);
        uint32_t& at = scratch_[nodes_->worker(m)];
        at = std::max(at, task_position(m, kAll));
      }
      uint32_t* stored = row(clocks_, node);
      if (!std::equal(scratch_.begin(), scratch_.end(), stored)) {
        has_changed_ = true;
        std::ranges::copy(scratch_, stored);
      }
      send(node, i);
    }
  }
  clock[nodes_->worker(task)] = base(task) + levels_;
}

void HappensBefore::send(uint32_t node, const abi::Instruction& i) {
  for (uint32_t s = 0; s < abi::num_signals(i); ++s) {
    const uint32_t event = i.signals[s].event;
    done_clock(node, abi::publication(i.signals[s]), scratch_.data());
    raise(row(event_clocks_, event), scratch_.data(), num_workers_);
    arrived_[event] += abi::increment(i.signals[s]);
    if (arrived_[event] < lowest_blocked_[event]) continue;
    uint64_t lowest = ~uint64_t{0};
    std::erase_if(blocked_[event], [&](const Blocked& b) {
      if (arrived_[event] < b.threshold) {
        lowest = std::min<uint64_t>(lowest, b.threshold);
        return false;
      }
      ready_.push_back(b.worker);
      return true;
    });
    lowest_blocked_[event] = lowest;
  }
}

}  // namespace megartp::verify
