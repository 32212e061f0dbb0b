// OpGraph -> TaskGraph: resolves shapes, asks each family for its stages, derives events from regions.
#pragma once

#include "lowering/task_graph.h"
#include "megartp/op_graph.h"

namespace megartp {

struct EventOptions {
  EventMode mode = EventMode::kExact;
  // What one instruction holds; relay tasks are made where a task needs more.
  uint32_t max_waits = abi::kMaxWaits;
  uint32_t max_signals = abi::kMaxSignals;
};

struct LowerOptions {
  FinalizerMode finalizer = FinalizerMode::kFused;
  EventOptions events{};
  bool any_shape = false;  // LowerContext::any_shape, for plan templates
};

// Linear in tasks. Errors: a symbol without value, dims over 2^31, an op without a family, more operands than a row
// holds.
Result<TaskGraph> lower(const OpGraph& graph, const ShapeEnv& shapes, const LowerOptions& options = {});

}  // namespace megartp
