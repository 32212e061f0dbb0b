// OpGraph -> TaskGraph: resolves shapes, asks each family for its stages, derives events from regions.
#pragma once

#include "lowering/task_graph.h"
#include "megartp/op_graph.h"

namespace megartp {

// What the cost model of `auto` and of explanations goes by; plan/target.h fills it for a target.
struct EventCosts {
  uint32_t num_workers = 132;
  double read_gb_per_s = 4350;  // whole chip
  double gflops = 1979e3;
  double task_overhead_us = 0.6;
  double signal_us = 0.05;          // each signal of a task beyond its first
  double contended_add_us = 0.002;  // each add to the same counter
};

struct EventOptions {
  EventMode mode = EventMode::kExact;
  // What one instruction holds; relay tasks are made where a task needs more.
  uint32_t max_waits = abi::kMaxWaits;
  uint32_t max_signals = abi::kMaxSignals;
  EventCosts costs{};
};

struct LowerOptions {
  FinalizerMode finalizer = FinalizerMode::kFused;
  EventOptions events{};
  bool any_shape = false;  // LowerContext::any_shape, for plan templates
  uint32_t num_sms = 0;    // LowerContext::num_sms; TargetDesc::num_sms() has it
};

// Linear in tasks. Errors: a symbol without value, dims over 2^31, an op without a family, more operands than a row
// holds.
Result<TaskGraph> lower(const OpGraph& graph, const ShapeEnv& shapes, const LowerOptions& options = {});

}  // namespace megartp
