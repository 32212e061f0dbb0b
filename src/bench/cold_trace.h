// The kernel trace of one cold replay of a layer, and what the trace costs. Used by `megartp run --kernel-trace`.
#pragma once

#include <memory>

#include "backends/cuda_graph/kernel_trace.h"
#include "bench/statistics.h"
#include "models/glm52/layer_run.h"

namespace megartp::bench {

struct ColdTraceOptions {
  uint32_t num_copies = 8;   // of weights, rotated over as `megartp bench` does
  size_t num_samples = 100;  // of the times without and with the trace
  size_t num_warm_up = 20;   // replays before the samples
  codegen::CompileOptions compile;
};

struct ColdTrace {
  cuda_graph::KernelTrace trace;
  // By the protocol of cuda_frame.h, both cold: the plan as it is, and compiled with the trace.
  Summary plain_us, traced_us;
};

// kMismatch when the traced kernels write other bits than the plain ones. kUnsupported without a GPU.
Result<ColdTrace> trace_cold_replay(const glm52::LayerRun& run, std::shared_ptr<const LaunchPlan> plan,
                                    const ColdTraceOptions& options = {},
                                    std::shared_ptr<const cuda::Context> context = nullptr);

}  // namespace megartp::bench
