// The passes of lower(), in order. Each takes the TaskGraph that the one before left.
#pragma once

#include <memory>

#include "lowering/lower.h"

namespace megartp::lowering {

// Tensor table (graph tensors with their ids) with all dims resolved; op names and kinds; shapes. Errors name tensor,
// shape and the dimension that is not positive or not below 2^31.
Status resolve_tensors(const OpGraph& graph, const ShapeEnv& shapes, TaskGraph& out);

// The families' stages of every op in program order, their workspaces and deduplicated specs. Errors: an op without a
// family, a stage with more operands than a row holds, and what families report.
Status build_stages(const OpGraph& graph, TaskGraph& out);

// Appends stages: checks the operand row, gives the spec id. Hand-made stages (tests) come in this way too.
class StageAppender {
 public:
  explicit StageAppender(TaskGraph& graph);
  ~StageAppender();
  StageAppender(const StageAppender&) = delete;
  StageAppender& operator=(const StageAppender&) = delete;
  Status append(OpId op, std::unique_ptr<Stage> stage);

 private:
  struct SpecTable;
  TaskGraph& graph_;
  std::unique_ptr<SpecTable> specs_;
};

// One task a tile, with payload, estimates and join counters; no waits or signals yet.
Status expand_tasks(TaskGraph& graph);

// Waits, signals, events and edges from the stages' regions.
Status derive_events(TaskGraph& graph, const EventOptions& options = {});

}  // namespace megartp::lowering
