#include "verify/plan/event_order.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan_limits.h"

namespace megartp {

KernelPlan event_order_plan(const KernelPlan& plan) {
  std::vector<const abi::Instruction*> tasks(plan.num_tasks, nullptr);
  for (const abi::Instruction& i : plan.instructions)
    if (i.opcode != abi::kOpcodeNoOp) tasks[i.task_id] = &i;
  std::vector<std::vector<uint32_t>> chains;
  std::vector<uint32_t> chain_of(tasks.size(), kInvalidId);
  // Signallers of each event that may still stand at the end of their chain; those that no longer do are dropped.
  std::vector<std::vector<uint32_t>> ends(plan.events.size());
  const auto take_end = [&](const abi::Wait& wait) {
    // An event that may fire before all have signalled orders nobody after a certain one.
    if (wait.threshold != plan.events[wait.event].total) return kInvalidId;
    std::vector<uint32_t>& candidates = ends[wait.event];
    while (!candidates.empty()) {
      const uint32_t chain = chain_of[candidates.back()];
      const bool is_end = chains[chain].back() == candidates.back();
      candidates.pop_back();
      if (is_end) return chain;
    }
    return kInvalidId;
  };
  // Ids ascend with program order, so what a task waits for has mostly been placed; if not, it just gets no chain.
  for (uint32_t t = 0; t < tasks.size(); ++t) {
    const abi::Instruction& i = *tasks[t];
    uint32_t chain = kInvalidId;
    for (uint32_t w = 0; w < abi::num_waits(i) && chain == kInvalidId; ++w) chain = take_end(i.waits[w]);
    if (chain == kInvalidId) {
      chain = static_cast<uint32_t>(chains.size());
      chains.emplace_back();
    }
    chain_of[t] = chain;
    chains[chain].push_back(t);
    for (uint32_t s = 0; s < abi::num_signals(i); ++s) ends[i.signals[s].event].push_back(t);
  }

  KernelPlan out = plan;
  out.num_workers = static_cast<uint32_t>(chains.size());
  out.queue_depth = 0;
  for (const auto& chain : chains) out.queue_depth = std::max(out.queue_depth, static_cast<uint32_t>(chain.size()));
  out.instructions.assign(size_t{out.num_workers} * out.queue_depth, make_noop());
  for (size_t c = 0; c < chains.size(); ++c)
    for (size_t slot = 0; slot < chains[c].size(); ++slot)
      out.instructions[c * out.queue_depth + slot] = *tasks[chains[c][slot]];
  return out;
}

}  // namespace megartp
