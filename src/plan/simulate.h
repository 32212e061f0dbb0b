// A discrete-event simulator of plans: how long a plan takes on a target, told from bytes, rates and event costs, with
// no device; or with measured times, what a run would have taken with something changed.
//
// Workers walk their queues. A task starts when the worker is free and its waits are over; it then computes and, at the
// same time, reads its bytes. All that is being read at a moment shares the chip's rate evenly, up to what one worker
// can take. On targets with `prefetch_bytes` a worker reads the weights of its next tasks while it waits or computes.
// Signals arrive event_latency_us after they are sent; each further signal of a task holds up the worker; adds to one
// counter follow one another contended_add_us apart. One fixed sequence of floating-point operations: the same input
// gives the same times everywhere.
//
// The numbers are the target's (plan/target.h), so that packers and this simulator can go by the same ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lowering/task_graph.h"
#include "plan/kernel_plan.h"
#include "plan/target.h"

namespace megartp {

// What one tile costs, weights told apart (a Task has the sum).
struct TaskCost {
  uint64_t weight_bytes = 0;
  uint64_t other_bytes = 0;
  uint64_t flops = 0;
};
// Of every task of the graph, by id.
std::vector<TaskCost> task_costs(const TaskGraph& graph);

struct SimTask {
  TaskCost cost;
  // >= 0: the task takes so long, whatever its bytes and the target say.
  double fixed_ns = -1;
  uint32_t first_wait = 0, num_waits = 0;      // into SimProgram::waits
  uint32_t first_signal = 0, num_signals = 0;  // into SimProgram::signals
  uint32_t join_group = abi::kNoJoin;          // the last of a group to be done sends its signals
};
struct SimProgram {
  std::vector<SimTask> tasks;
  std::vector<abi::Wait> waits;
  std::vector<abi::Signal> signals;
  std::vector<uint32_t> join_counts;
  uint32_t num_events = 0;
  // Tasks of each worker in order, CSR.
  std::vector<uint32_t> queue_offsets;
  std::vector<uint32_t> queue;
};
// `costs` by task id; the plan must have passed check_plan.
SimProgram make_sim_program(const KernelPlan& plan, std::span<const TaskCost> costs);

// The times that the simulator takes from a target, each open to change.
struct SimCosts {
  double chip_bytes_per_ns = 0;    // 0: reading takes no time
  double worker_bytes_per_ns = 0;  // of one worker alone; 0: no bound but the chip's
  double worker_flops_per_ns = 0;  // 0: computing takes no time
  double task_ns = 0;              // before each task
  double event_ns = 0;             // signal to wait
  double signal_ns = 0;            // each signal of a task beyond its first
  double contended_add_ns = 0;     // between two adds to one counter
  double gap_ns = 0;               // of a worker, after each task
  double launch_ns = 0;            // before everything
  uint64_t prefetch_bytes = 0;
};
SimCosts sim_costs(const TargetDesc& target, uint32_t num_workers);

struct SimTimes {
  uint64_t visible_ns = 0, ready_ns = 0, done_ns = 0;
  bool sent = false;
};
// When a task's bytes came, and when it computed.
struct SimPart {
  uint32_t task = 0;
  bool is_read = false;
  uint64_t begin_ns = 0, end_ns = 0;
};
struct SimResult {
  uint64_t span_ns = 0;
  std::vector<SimTimes> tasks;
  std::vector<SimPart> parts;  // of tasks without a fixed time
};
// kDeadlock when tasks are left that nothing will let go on; kInvalidArgument when a queue names a task that there is
// not, or one twice.
Result<SimResult> simulate(const SimProgram& program, const SimCosts& costs);

}  // namespace megartp
