#include "verify/plan/nodes.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::verify {

PlanNodes::PlanNodes(const KernelPlan& kernel_plan)
    : plan(kernel_plan),
      num_tasks(kernel_plan.num_tasks),
      num_groups(static_cast<uint32_t>(kernel_plan.join_counts.size())),
      index(kernel_plan.num_tasks),
      member_offsets(size_t{num_groups} + 1),
      signaller_offsets(kernel_plan.events.size() + 1),
      signal_sums(kernel_plan.events.size()),
      first_task(kernel_plan.operand_rows.size(), kernel_plan.num_tasks) {
  for (size_t i = 0; i < plan.instructions.size(); ++i)
    if (plan.instructions[i].opcode != abi::kOpcodeNoOp) index[plan.instructions[i].task_id] = static_cast<uint32_t>(i);
  // Only the first member of a group stands for its signals: all members carry the same.
  const auto for_each_signal = [&](const auto& visit) {
    std::vector<bool> seen(num_groups, false);
    for (uint32_t t = 0; t < num_tasks; ++t) {
      const abi::Instruction& i = instruction(t);
      uint32_t node = t;
      if (i.join_counter != abi::kNoJoin) {
        if (seen[i.join_counter]) continue;
        seen[i.join_counter] = true;
        node = num_tasks + i.join_counter;
      }
      for (uint32_t s = 0; s < abi::num_signals(i); ++s)
        visit(i.signals[s].event, Signaller{node, abi::increment(i.signals[s]), abi::publication(i.signals[s])});
    }
  };
  for (uint32_t t = 0; t < num_tasks; ++t) {
    const abi::Instruction& i = instruction(t);
    first_task[i.operand_row] = std::min(first_task[i.operand_row], t);
    if (i.join_counter != abi::kNoJoin) ++member_offsets[i.join_counter + 1];
  }
  for_each_signal([&](uint32_t event, const Signaller& s) {
    ++signaller_offsets[event + 1];
    signal_sums[event] += s.increment;
  });
  for (size_t j = 1; j < member_offsets.size(); ++j) member_offsets[j] += member_offsets[j - 1];
  for (size_t e = 1; e < signaller_offsets.size(); ++e) signaller_offsets[e] += signaller_offsets[e - 1];
  members.resize(member_offsets.back());
  signallers.resize(signaller_offsets.back());
  std::vector<uint32_t> next(member_offsets.begin(), member_offsets.end() - 1);
  for (uint32_t t = 0; t < num_tasks; ++t)
    if (const uint32_t j = instruction(t).join_counter; j != abi::kNoJoin) members[next[j]++] = t;
  next.assign(signaller_offsets.begin(), signaller_offsets.end() - 1);
  for_each_signal([&](uint32_t event, const Signaller& s) { signallers[next[event]++] = s; });
}

PlanPlace PlanNodes::place(uint32_t node) const {
  const uint32_t task = last_task(node);
  const uint32_t r = instruction(task).operand_row;
  return {worker(task), slot(task), task, fmt::format("{} tile {}", plan.operand_rows[r].name, task - first_task[r])};
}

std::string PlanNodes::name(uint32_t node) const {
  if (!is_group(node)) return describe(place(node));
  const std::span<const uint32_t> tasks = members_of(node - num_tasks);
  return fmt::format("the last arriver of join group {} ({} tiles {} to {})", node - num_tasks,
                     plan.operand_rows[row(node)].name, tasks.front() - first_task[row(node)],
                     tasks.back() - first_task[row(node)]);
}

}  // namespace megartp::verify
