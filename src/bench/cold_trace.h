// The trace of one cold replay of a layer on the GPU, and what tracing costs. Used by `megartp trace record` and
// `megartp run --kernel-trace`.
//
// The code runs as it is and compiled with MEGARTP_TRACE=1, each on every copy of the weights; one copy has been driven
// out of L2 by the others when its turn comes.
#pragma once

#include <memory>
#include <vector>

#include "backends/raw_trace.h"
#include "bench/statistics.h"
#include "codegen/compile_kernels.h"
#include "launch/launch_plan.h"
#include "models/glm52/layer_run.h"
#include "plan/kernel_plan.h"

namespace megartp::cuda {
class Context;
}

namespace megartp::bench {

// The shortest of the runs, at least one, or the one of median length.
RawTrace pick_run(std::vector<RawTrace> runs, bool is_shortest);

struct ColdTraceOptions {
  uint32_t num_copies = 8;     // of weights, rotated over as `megartp bench` does
  size_t num_warm_up = 20;     // replays of either kind before anything counts
  size_t num_traces = 1;       // traced replays, of which one is kept:
  bool is_shortest = false;    // the shortest, or the one of median length
  size_t num_pairs = 100;      // timed replays without and with the trace, in turn
  bool is_cooperative = true;  // launches of the persistent kernel
  codegen::CompileOptions compile;
};

struct ColdTrace {
  std::string device;  // its name
  RawTrace raw;
  // By the protocol of cuda_frame.h, both cold.
  Summary plain_us, traced_us;
  double overhead() const { return traced_us.median / plain_us.median - 1; }
};

// kMismatch when the traced code writes other bits than the plain one. kUnsupported without a GPU.
Result<ColdTrace> trace_cold_replay(const glm52::LayerRun& run, std::shared_ptr<const LaunchPlan> plan,
                                    const ColdTraceOptions& options = {},
                                    std::shared_ptr<const cuda::Context> context = nullptr);
// `num_bytes`: what one run moves.
Result<ColdTrace> trace_cold_replay(const glm52::LayerRun& run, std::shared_ptr<const KernelPlan> plan,
                                    uint64_t num_bytes, const ColdTraceOptions& options = {},
                                    std::shared_ptr<const cuda::Context> context = nullptr);

}  // namespace megartp::bench
