// prove_plan: is a plan free of races and deadlocks, and can this target hold it?
//
// What it proves, and how, is docs/prover.md. Everything is judged from the plan alone, so a plan from a file is judged
// as one that was just packed: regions come from the instructions (OpFamily::regions), the order in which tasks must
// appear to have run from their ids, and the order that holds from queues, events and join groups.
//
// Time and memory are linear in tasks times workers. The plan needs no check before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/kernel_plan.h"

namespace megartp {

enum class PlanFault : uint8_t {
  kMalformed,        // not a plan: check_plan_structure says how
  kQueueCycle,       // tasks wait for each other in a circle of queue order, events and join groups
  kWrongCount,       // a threshold or a join count that the signals never reach
  kStaleEpoch,       // what one run adds to an event is not its total: replays would drift
  kJoinMismatch,     // members of one join group whose last arrivers would do different things
  kReadBeforeWrite,  // a read that nothing orders after the write of what it reads
  kWarReuse,         // memory is rewritten while a reader may still run
  kWawReorder,       // two writes whose order nothing fixes
  kAlias,            // a read finds what another tensor left in the same memory
  kUnwrittenRead,    // a read of elements that no task has written
  kTailLost,         // an output that is not wholly written
  kPrefetchMutable,  // a task writes a weight or an argument, which loaders may read at any time
  kOverSubscribe,    // more workers than can be co-resident
  kQueueOverflow,    // more instructions than a queue holds
  kSmemBudget,       // pages and scratch above the shared memory of a worker
  kGcdTrap,          // warning: a barrier where the regions need a fraction of it
};
std::string_view to_string(PlanFault fault);  // "queue_cycle", as in tests/faults/plan

struct PlanPlace {
  uint32_t worker = 0;
  uint32_t slot = 0;
  uint32_t task = 0;
  std::string name;  // "B0 tile 7"
};
struct PlanFinding {
  PlanFault fault = PlanFault::kMalformed;
  bool is_warning = false;
  std::string message;  // one sentence: what can go wrong, and where
  std::vector<PlanPlace> places;
  std::string tensor;  // empty: none
  int64_t event = -1;  // -1: none
};

struct PlanProofStats {
  uint32_t num_tasks = 0;
  uint32_t num_events = 0;
  uint32_t num_join_groups = 0;
  uint64_t num_regions = 0;  // accesses of tasks and last arrivers to memory that some task writes
  uint64_t num_distinct_regions = 0;
  uint64_t num_orderings = 0;       // (access, earlier regions that it overlaps) that were proved ordered
  uint32_t num_shared_tensors = 0;  // workspace tensors that share bytes with another
  uint32_t num_passes = 0;          // over the plan for its order; more than one where waits leave signals out
};

struct PlanProof {
  std::vector<PlanFinding> findings;
  PlanProofStats stats;
  // No finding but warnings.
  bool is_proved() const {
    for (const PlanFinding& f : findings)
      if (!f.is_warning) return false;
    return true;
  }
};

// What the runner of the plan has; zero: no limit, or not known.
struct PlanLimits {
  std::string name;              // "h200", for messages
  uint32_t max_workers = 0;      // that are co-resident: workers that wait for others must all be running
  uint32_t max_queue_depth = 0;  // instructions of one queue, where a runner copies them into a ring
  uint32_t smem_bytes = 0;       // of a worker
  uint32_t num_pages = 0;        // that the runner's frame keeps there
  uint32_t page_bytes = 0;
  uint32_t scratch_bytes = 0;  // what else the frame keeps: descriptors, barriers, scales
};
// Co-residency and shared memory of a target; none of threads on a CPU, which the system runs in turns.
PlanLimits plan_limits(const TargetDesc& target);

PlanProof prove_plan(const KernelPlan& plan, const PlanLimits& limits = {});

// The gate: every backend's prepare calls it. OK, or the first error of the proof with the others in its details:
// kDeadlock for a plan that cannot progress, kOutOfResources for one that does not fit, kParse for a malformed one,
// kMismatch for a race. Plans that passed are remembered by their contents, so that preparing one again costs a hash.
// Thread-safe.
Status require_proved(const KernelPlan& plan, const PlanLimits& limits = {});

}  // namespace megartp
