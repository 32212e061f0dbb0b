// What a trace says: the chain of links that bounds the run, how much every task could be later, where lanes stood idle
// and why, which ops ran at the same time.
//
// Called by the exporters and the command-line tool. Invariants: the links of the critical path follow one another
// without a gap from 0 to span_ns; no slack is negative, and tasks on the critical path have none; busy and idle time
// add up to span_ns x units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace megartp::trace {

enum class LinkKind : uint8_t {
  kCompute,  // the task's tile
  kWeights,  // the task's tile, where reading weights is what takes the time
  kWait,     // from the last signal that the task needed until it began
  kQueue,    // from the end of the task before it on the lane until it began
  kLaunch,   // from the begin of the run, of a kernel after the one before it; to the end of the run
};
inline constexpr uint32_t kLinkKinds = 5;
std::string_view to_string(LinkKind kind);  // "compute", "weights", "wait", "queue", "launch"

struct CriticalLink {
  uint32_t task = 0;  // on which the time was spent
  LinkKind kind = LinkKind::kCompute;
  uint64_t begin_ns = 0, end_ns = 0;
  uint32_t event = ~uint32_t{0};  // of kWait
};

enum class IdleReason : uint8_t {
  kStart,     // before the unit has its first task
  kQueue,     // between tasks, nothing to wait for: fetching, signalling
  kProducer,  // waiting for an event whose signallers were not done
  kLatency,   // they were; the signal was on its way or not noticed yet
  kLaunch,    // they were; the kernel was launched after them
  kPrefetch,  // waiting, while weights came in: useful
  kEnd,       // the unit's work was over
};
inline constexpr uint32_t kIdleReasons = 7;
std::string_view to_string(IdleReason reason);  // "start", "queue", ...: a few words for tables

// Time during which both ops had a task running.
struct OpOverlap {
  uint32_t a = 0, b = 0;  // a < b
  uint64_t ns = 0;
};
struct OpTime {
  uint32_t num_tasks = 0;
  uint64_t busy_ns = 0;      // summed over tasks, waits left out
  uint64_t first_ns = 0;     // the first is ready
  uint64_t last_ns = 0;      // the last is done
  uint64_t running_ns = 0;   // time during which at least one was running
  uint64_t alone_ns = 0;     // ... and no other op
  uint64_t critical_ns = 0;  // compute and weight links of the critical path
};

struct Analysis {
  std::vector<CriticalLink> critical;
  uint64_t link_ns[kLinkKinds] = {};  // sums of the critical path by kind
  std::vector<uint64_t> slack_ns;     // of each task
  uint32_t num_units = 0;             // workers or SMs
  uint64_t busy_ns = 0;               // of units: at least one task computes
  uint64_t idle_ns[kIdleReasons] = {};
  std::vector<OpTime> ops;
  std::vector<OpOverlap> overlaps;  // longest first
  // Waits whose signals are not all in the trace: links, slack and reasons are then guesses in places.
  uint64_t num_unresolved = 0;

  uint64_t critical_ns() const;  // sum of the links
};
Analysis analyse(const Trace& trace);

// The steps; each can be tested alone.
class Dependencies;
std::vector<CriticalLink> critical_path(const Trace& trace, const Dependencies& deps);
std::vector<uint64_t> slacks(const Trace& trace, const Dependencies& deps);
void add_idle_times(const Trace& trace, const Dependencies& deps, Analysis& out);
void add_op_times(const Trace& trace, Analysis& out);

}  // namespace megartp::trace
