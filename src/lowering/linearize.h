// linearize(): an order of tasks in which the consumers of an event stand side by side.
//
//   F0 F1 F2 F3 | A0 A1 B0 | A2 A3 B1      two events, each released to one range of positions: (first, last) says it
//   all
//
// Used by formats and schedulers that name an event's consumers by a range (plan/mpk_json.h). Where every task waits
// for one event at most, all events come out contiguous. A task with several waits stands with the consumers of the
// event that completes last; its other events may then be scattered, which the result says.
//
// Blocks (the tasks that share such an event) follow program order as far as dependencies allow: a block stands where
// its first task would. Within a block tasks keep program order: stage, then tile.
#pragma once

#include <cstdint>
#include <vector>

#include "lowering/task_graph.h"

namespace megartp::lowering {

// Where the consumers of an event stand.
struct EventSpan {
  uint32_t first = 0;       // position of the first consumer
  uint32_t end = 0;         // one after the last; first == end when nothing waits for the event
  uint32_t num_ranges = 0;  // maximal runs of positions that hold consumers
  bool is_contiguous() const { return num_ranges <= 1; }
};

struct LinearOrder {
  std::vector<uint32_t> order;      // position -> task
  std::vector<uint32_t> positions;  // task -> position
  std::vector<EventSpan> spans;     // by event
  uint32_t num_contiguous = 0;      // events with is_contiguous()
};

struct LinearizeOptions {
  // Tasks without waits stand before all others, so that they too are one range. Otherwise each stands where the
  // program has it, which keeps the late stages' first tasks from being started early.
  bool roots_first = false;
};

// Linear in tasks, waits and signals; deterministic. Every task stands after all tasks that signal its events. (All
// tasks of a join group count as signallers: any of them may be the one that arrives last.) Errors (kInternal): events
// that form a cycle, an event that is waited for and never signalled; both name the tasks.
Result<LinearOrder> linearize(const TaskGraph& graph, const LinearizeOptions& options = {});

}  // namespace megartp::lowering
