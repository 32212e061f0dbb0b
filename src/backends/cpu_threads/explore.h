// cpu-threads, exploring: runs a small plan in every order that can make a difference, in one thread, and compares each
// outcome with the sequential one.
//
// A worker sees what its own tasks wrote, and of the others' writes only what reached it through a signal (release) and
// a wait or join (acquire). A wait that is missing therefore shows as a stale value. What one task writes while
// another that is not ordered with it reads may be seen early as well: such pairs are found by running the reader again
// with the writer's bytes, and executions with the early value are explored too.
//
// Orders are explored up to equivalence by dynamic partial-order reduction: two steps of different workers are run in
// both orders when that can change anything, that is when one of them is the last arrival at a join, when a wait could
// see fewer or more signals, and when two tasks that are not ordered touch the same bytes. Values decide, not regions:
// a write of the value that is there already is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "plan/fault_dump.h"

namespace megartp {

inline constexpr uint32_t kMaxExploreWorkers = 64;
inline constexpr uint32_t kMaxExploreTasks = 4096;
inline constexpr uint64_t kMaxExploreBytes = uint64_t{256} << 20;  // of all tensors that the plan writes

struct ExploreOptions {
  uint64_t max_executions = 1000;
  bool all_orders = false;  // no reduction: every order of the workers' steps; to check the reduction against
};

// Two tasks that nothing orders, of which one writes what the other reads or writes.
struct ExploreRace {
  uint32_t writer = 0;
  uint32_t other = 0;
  bool both_write = false;
  friend bool operator==(const ExploreRace&, const ExploreRace&) = default;
};

struct ExploreReport {
  uint64_t num_executions = 0;
  bool is_complete = false;  // no execution is left that could differ; false: max_executions came first
  uint64_t num_deadlocks = 0;
  uint64_t num_different = 0;  // executions whose outputs or states are not, bit by bit, those of the sequential order
  std::vector<ExploreRace> races;
  std::vector<std::string> findings;  // the first kMaxFindings deadlocks and differences, one sentence each
  FaultDump deadlock;                 // of the first deadlock; no records: there was none

  static constexpr size_t kMaxFindings = 16;
  bool is_clean() const { return num_deadlocks == 0 && num_different == 0; }
};

class Explorer : public Executable {
 public:
  // Of the last run().
  virtual const ExploreReport& report() const = 0;
};

// run() explores; afterwards the bound tensors hold what the sequential order (by task id) gives. The plan's queues and
// events may be wrong in any way; that is what this is for. Everything else must pass check_plan. kUnsupported: more
// workers, tasks or bytes than the limits above.
Result<std::unique_ptr<Explorer>> prepare_explorer(std::shared_ptr<const KernelPlan> plan,
                                                   const ExploreOptions& options = {});

// One sentence for people: "42 executions (all that can differ): 0 deadlocks, 0 with other outputs".
std::string describe(const ExploreReport& report);
std::string describe(const ExploreRace& race, const KernelPlan& plan);

}  // namespace megartp
