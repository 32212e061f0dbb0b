// The steps of pack(): schedule, memory, encoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/kernel_plan.h"

namespace megartp::plan {

// Tasks of each worker, in the order in which it runs them. All queues follow one topological order of the tasks, so a
// worker that waits always waits for tasks that stand earlier in that order: no deadlock is possible.
struct Schedule {
  std::vector<uint32_t> offsets;  // CSR worker -> tasks
  std::vector<uint32_t> tasks;
};

// Time of one tile on one of `num_workers` workers that share the chip's bandwidth and arithmetic evenly, besides the
// overhead of a task.
double task_work_us(const Task& task, const TargetDesc& target, uint32_t num_workers);

Schedule schedule_round_robin(const TaskGraph& graph, uint32_t num_workers);

// List scheduling: the worker that is free first takes, of the tasks whose inputs are there, the one with the longest
// remaining path (costs and event latencies); ties go to the lower task id. O(n log n) through events, never over pairs
// of tasks. Errors: events that form a cycle or wait for more signals than are sent (kInternal).
Result<Schedule> schedule_critical_path(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers);
// The same with the task after which the longest path remains: Jackson's rule, the best order of one worker's ready
// tasks. A long task with little behind it then does not hold up a short one with much behind it.
Result<Schedule> schedule_longest_tail(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers);
// Every task where it can begin first, idle time between a worker's tasks included, in the order of the path that
// remains after them: a worker may wait for a task with much behind it though another one is ready. O(n * workers).
// Errors as above.
Result<Schedule> schedule_insertion(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers);

// By the packer.
Result<Schedule> make_schedule(const TaskGraph& graph, const TargetDesc& target, Packer packer, uint32_t num_workers);

inline constexpr uint64_t kArenaAlignment = 256;

// Gives every activation its own 256-byte aligned range; returns the arena's size. No two tensors share memory.
Result<uint64_t> place_tensors(std::span<PlanTensor> tensors);

}  // namespace megartp::plan
