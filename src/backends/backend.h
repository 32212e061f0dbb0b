// Backends and executables: a plan with code and addresses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/raw_trace.h"
#include "megartp/error.h"
#include "megartp/op_graph.h"
#include "plan/kernel_plan.h"

namespace megartp {

struct BackendInfo {
  std::string_view name;
  std::string_view doc;
  bool available = true;
};
std::vector<BackendInfo> backends();

// What one run did, per operand row (stage).
struct StageStats {
  std::string name;
  uint32_t num_tasks = 0;
  double busy_ns = 0;  // summed over workers, waits excluded
};
struct RunStats {
  double wall_ns = 0;
  std::vector<StageStats> stages;
};

struct FaultDump;  // plan/fault_dump.h

enum class Schedule : uint8_t {
  kStatic,   // every worker walks its queue of the plan
  kDynamic,  // scheduler threads hand tasks to workers; the queues' order is ignored (docs/memory-model.md)
};
// When the dynamic scheduler hands a task to a worker.
enum class Dispatch : uint8_t {
  kMixed,       // tasks with several waits just in time, the others ahead
  kAhead,       // all at the start of the run; workers look at the events
  kJustInTime,  // when the last of its events is complete
};
std::string_view to_string(Schedule schedule);
std::string_view to_string(Dispatch dispatch);
Result<Schedule> parse_schedule(std::string_view name);  // "static", "dynamic"
Result<Dispatch> parse_dispatch(std::string_view name);  // "mixed", "ahead", "just-in-time"

struct CpuThreadsOptions {
  std::chrono::milliseconds timeout{10000};  // a run with no progress for this long ends with kDeadlock and a dump
  bool randomize = false;                    // random delays before tasks and signals, from the seed
  uint64_t seed = 0;
  bool collect_stats = true;
  Schedule schedule = Schedule::kStatic;
  Dispatch dispatch = Dispatch::kMixed;
  uint32_t num_schedulers = 0;  // scheduler threads of kDynamic; 0: one for every eight workers
  uint32_t ring_entries = 256;  // of each of kDynamic's queues, a power of two; full queues make their writers wait
  // Fault injection: this task's signals never arrive. For tests of what reports a fault.
  uint32_t lose_signals_of = abi::kNoTask;
};

// A plan ready to run on one backend. Not thread-safe: one run at a time per executable; several executables may run at
// once.
class Executable {
 public:
  virtual ~Executable() = default;
  // Binds an external tensor (argument, weight, state, output). Addresses may change between runs. The memory stays the
  // caller's and must outlive the runs.
  virtual Status bind(std::string_view tensor, void* data, size_t num_bytes) = 0;
  // Address of any tensor, workspace included (intermediates stay readable after a run); nullptr when unknown or
  // unbound.
  virtual void* data(std::string_view tensor) const = 0;
  // Fills workspace and bound outputs with 0xff bytes (NaN in every float format), so that a value nobody wrote shows.
  virtual void poison() = 0;
  virtual Result<RunStats> run() = 0;
  // Where everybody stood when the last run ended with kDeadlock or kTimeout; nullptr otherwise.
  virtual const FaultDump* fault() const { return nullptr; }
  // From the next run on, every worker writes down up to so many tasks (0: none any more). kUnsupported where a backend
  // has no recorder.
  virtual Status record_trace(uint32_t records_per_worker);
  // What the last successful run wrote down; nullptr when it recorded nothing. Valid until the next run.
  virtual const RawTrace* raw_trace() const { return nullptr; }
};

// N threads, one per queue, walk the instruction tensor; or, with Schedule::kDynamic, N workers and some schedulers.
// kInvalidArgument: ring_entries that are no power of two or more schedulers than workers.
Result<std::unique_ptr<Executable>> prepare_cpu_threads(std::shared_ptr<const KernelPlan> plan,
                                                        const CpuThreadsOptions& options = {});
// Whole ops in double precision, from the graph.
Result<std::unique_ptr<Executable>> prepare_cpu_reference(const OpGraph& graph, const ShapeEnv& shapes);

}  // namespace megartp
