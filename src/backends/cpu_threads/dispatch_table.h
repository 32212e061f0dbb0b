// What the dynamic scheduler knows of a plan before any run: which task goes to whom, and when.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "plan/kernel_plan.h"

namespace megartp {

// "event has reached threshold", where some just-in-time task waits for it.
struct Milestone {
  uint32_t event = 0;
  uint32_t threshold = 0;
  uint32_t first_consumer = 0;  // into DispatchTable::consumers
  uint32_t num_consumers = 0;
};

struct DispatchTable {
  // Events with fewer consumers go to one scheduler, the others to all of them, each of which takes a slice.
  static constexpr uint32_t kBroadcastConsumers = 8;

  DispatchTable(const KernelPlan& plan, Dispatch dispatch, uint32_t num_schedulers);

  // Milestones of an event, ascending thresholds.
  std::span<const Milestone> milestones_of(uint32_t event) const {
    return std::span(milestones).subspan(first_milestone[event], first_milestone[event + 1] - first_milestone[event]);
  }
  std::span<const uint32_t> consumers_of(const Milestone& m) const {
    return std::span(consumers).subspan(m.first_consumer, m.num_consumers);
  }
  uint32_t scheduler_of(uint32_t worker) const { return worker / workers_per_scheduler; }

  // Tasks in an order in which each can run after those before it (ids where that leaves a choice). Tasks that can
  // never run come last.
  std::vector<uint32_t> order;
  std::vector<std::vector<uint32_t>> ahead;  // of each worker, in `order`; the rest is just in time
  std::vector<Milestone> milestones;         // by event, then threshold
  std::vector<uint32_t> first_milestone;     // of each event, and the end
  std::vector<uint32_t> consumers;
  uint32_t workers_per_scheduler = 1;
};

}  // namespace megartp
