// PlanNodes: the things that a proof orders. Node t < num_tasks is task t; node num_tasks + j is what the last arriver
// of join group j does once all have arrived.
//
// Program order: tasks in the order of their ids, which follow the graph's ops; a group's node counts as its last
// member.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/kernel_plan.h"
#include "verify/plan/plan_proof.h"

namespace megartp::verify {

struct Signaller {
  uint32_t node = 0;
  uint32_t increment = 0;
  uint32_t publication = 0;
};

struct PlanNodes {
  explicit PlanNodes(const KernelPlan& kernel_plan);

  const KernelPlan& plan;
  uint32_t num_tasks = 0;
  uint32_t num_groups = 0;
  std::vector<uint32_t> index;           // by task: position in plan.instructions
  std::vector<uint32_t> member_offsets;  // CSR group -> tasks, ascending
  std::vector<uint32_t> members;
  std::vector<uint32_t> signaller_offsets;  // CSR event -> signallers
  std::vector<Signaller> signallers;
  std::vector<uint64_t> signal_sums;  // by event
  std::vector<uint32_t> first_task;   // by operand row: lowest id, for "tile 7"; num_tasks where it has none

  uint32_t num_nodes() const { return num_tasks + num_groups; }
  bool is_group(uint32_t node) const { return node >= num_tasks; }
  const abi::Instruction& instruction(uint32_t task) const { return plan.instructions[index[task]]; }
  uint32_t worker(uint32_t task) const { return index[task] / plan.queue_depth; }
  uint32_t slot(uint32_t task) const { return index[task] % plan.queue_depth; }
  std::span<const uint32_t> members_of(uint32_t group) const {
    return std::span(members).subspan(member_offsets[group], member_offsets[group + 1] - member_offsets[group]);
  }
  std::span<const Signaller> signallers_of(uint32_t event) const {
    return std::span(signallers)
        .subspan(signaller_offsets[event], signaller_offsets[event + 1] - signaller_offsets[event]);
  }
  // The last one in program order of what the node stands for.
  uint32_t last_task(uint32_t node) const {
    return is_group(node) ? members[member_offsets[node - num_tasks + 1] - 1] : node;
  }
  uint32_t row(uint32_t node) const { return instruction(last_task(node)).operand_row; }

  PlanPlace place(uint32_t node) const;
  std::string name(uint32_t node) const;  // "worker 3 slot 5 (B0 tile 7)", "the last arriver of join group 2 (B0)"
};

inline std::string describe(const PlanPlace& p) {
  return "worker " + std::to_string(p.worker) + " slot " + std::to_string(p.slot) + " (" + p.name + ")";
}

}  // namespace megartp::verify
