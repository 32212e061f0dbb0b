#include "verify/plan/deadlock.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::verify {
namespace {

// A task that has not run and whose end the event still needs; num_tasks when all signallers have sent.
uint32_t missing_task(const PlanNodes& nodes, const HappensBefore& order, uint32_t event) {
  for (const Signaller& s : nodes.signallers_of(event)) {
    if (!nodes.is_group(s.node)) {
      if (!order.has_run(s.node)) return s.node;
      continue;
    }
    for (const uint32_t m : nodes.members_of(s.node - nodes.num_tasks))
      if (!order.has_run(m)) return m;
  }
  return nodes.num_tasks;
}

}  // namespace

PlanFinding explain_deadlock(const PlanNodes& nodes, const HappensBefore& order) {
  constexpr uint32_t kNone = 0xffffffffU;
  std::vector<uint32_t> stuck_at(nodes.plan.num_workers, kNone);  // worker -> index in stuck()
  for (uint32_t i = 0; i < order.stuck().size(); ++i) stuck_at[order.stuck()[i].worker] = i;
  struct Step {
    const StuckWorker* at;
    uint32_t event;
    uint32_t signaller;
  };
  std::vector<Step> path;
  std::vector<uint32_t> step_of(order.stuck().size(), kNone);
  uint32_t at = 0;
  while (step_of[at] == kNone) {
    step_of[at] = static_cast<uint32_t>(path.size());
    const StuckWorker& s = order.stuck()[at];
    const abi::Wait& wait = nodes.instruction(s.task).waits[s.wait];
    const uint32_t signaller = missing_task(nodes, order, wait.event);
    if (signaller == nodes.num_tasks)
      return {PlanFault::kWrongCount,
              false,
              fmt::format("{} waits for event {} to reach {}, but its signals add up to {}", nodes.name(s.task),
                          wait.event, wait.threshold, nodes.signal_sums[wait.event]),
              {nodes.place(s.task)},
              {},
              wait.event};
    path.push_back({&s, wait.event, signaller});
    at = stuck_at[nodes.worker(signaller)];
  }
  PlanFinding f{PlanFault::kQueueCycle, false, "no worker can go on: ", {}, {}, -1};
  for (size_t i = step_of[at]; i < path.size(); ++i) {
    const Step& step = path[i];
    const bool is_head = order.stuck()[stuck_at[nodes.worker(step.signaller)]].task == step.signaller;
    f.message +=
        fmt::format("{}{} waits for event {}, which needs {}{}", i == step_of[at] ? "" : "; ",
                    nodes.name(step.at->task), step.event, nodes.name(step.signaller), is_head ? "" : ", behind");
    f.places.push_back(nodes.place(step.at->task));
    if (f.event < 0) f.event = step.event;
    if (!is_head) f.message += " " + nodes.name(order.stuck()[stuck_at[nodes.worker(step.signaller)]].task);
  }
  return f;
}

}  // namespace megartp::verify
