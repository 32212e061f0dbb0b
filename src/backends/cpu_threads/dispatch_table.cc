#include "backends/cpu_threads/dispatch_table.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace megartp {
namespace {

// Runs the plan without its tiles: always the task with the lowest id whose waits are over.
class DryRun {
 public:
  DryRun(const KernelPlan& plan, std::span<const abi::Instruction* const> instructions)
      : instructions_(instructions),
        counts_(plan.events.size()),
        arrivals_(plan.join_counts.size()),
        waiters_(plan.events.size()),
        missing_(plan.num_tasks) {}

  std::vector<uint32_t> run() {
    std::vector<uint32_t> order;
    std::vector<bool> is_done(instructions_.size());
    for (uint32_t t = 0; t < instructions_.size(); ++t) {
      const abi::Instruction& i = *instructions_[t];
      missing_[t] = abi::num_waits(i);
      for (uint32_t w = 0; w < abi::num_waits(i); ++w) waiters_[i.waits[w].event].push_back({i.waits[w].threshold, t});
      if (missing_[t] == 0) ready_.push(t);
    }
    // Highest threshold first: reached waits are taken from the back.
    for (auto& list : waiters_) std::ranges::sort(list, std::greater<>());
    while (!ready_.empty()) {
      const uint32_t task = ready_.top();
      ready_.pop();
      order.push_back(task);
      is_done[task] = true;
      finish(*instructions_[task]);
    }
    for (uint32_t t = 0; t < instructions_.size(); ++t)
      if (!is_done[t]) order.push_back(t);
    return order;
  }

 private:
  void finish(const abi::Instruction& i) {
    if (i.join_counter != abi::kNoJoin && ++arrivals_[i.join_counter] % i.join_count != 0) return;
    for (uint32_t s = 0; s < abi::num_signals(i); ++s) {
      const uint32_t event = i.signals[s].event;
      counts_[event] += abi::increment(i.signals[s]);
      auto& list = waiters_[event];
      for (; !list.empty() && list.back().first <= counts_[event]; list.pop_back())
        if (--missing_[list.back().second] == 0) ready_.push(list.back().second);
    }
  }

  std::span<const abi::Instruction* const> instructions_;
  std::vector<uint64_t> counts_;
  std::vector<uint32_t> arrivals_;
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> waiters_;  // of an event: threshold, task
  std::vector<uint32_t> missing_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready_;
};

bool is_ahead(const abi::Instruction& i, Dispatch dispatch) {
  const uint32_t waits = abi::num_waits(i);
  if (waits == 0 || dispatch == Dispatch::kAhead) return true;
  return dispatch == Dispatch::kMixed && waits == 1;
}

}  // namespace

DispatchTable::DispatchTable(const KernelPlan& plan, Dispatch dispatch, uint32_t num_schedulers)
    : ahead(plan.num_workers), workers_per_scheduler((plan.num_workers + num_schedulers - 1) / num_schedulers) {
  std::vector<const abi::Instruction*> instructions(plan.num_tasks);
  for (const abi::Instruction& i : plan.instructions)
    if (i.opcode != abi::kOpcodeNoOp) instructions[i.task_id] = &i;
  order = DryRun(plan, instructions).run();

  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> waits;  // event, threshold, position in `order`
  uint32_t num_ahead = 0;
  for (uint32_t p = 0; p < order.size(); ++p) {
    const abi::Instruction& i = *instructions[order[p]];
    if (is_ahead(i, dispatch)) {
      ahead[num_ahead++ % plan.num_workers].push_back(order[p]);
      continue;
    }
    for (uint32_t w = 0; w < abi::num_waits(i); ++w) waits.emplace_back(i.waits[w].event, i.waits[w].threshold, p);
  }
  std::ranges::sort(waits);
  first_milestone.assign(plan.events.size() + 1, 0);
  for (const auto& [event, threshold, position] : waits) {
    if (milestones.empty() || milestones.back().event != event || milestones.back().threshold != threshold) {
      milestones.push_back({event, threshold, static_cast<uint32_t>(consumers.size()), 0});
      ++first_milestone[event + 1];
    }
    ++milestones.back().num_consumers;
    consumers.push_back(order[position]);
  }
  for (size_t e = 0; e < plan.events.size(); ++e) first_milestone[e + 1] += first_milestone[e];
}

}  // namespace megartp
