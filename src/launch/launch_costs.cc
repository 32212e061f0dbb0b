#include "launch/launch_costs.h"

#include <fmt/format.h>

#include "plan/target.h"

namespace megartp {
namespace {

// Measured on one H200 with CUDA 13.0, 2026-11-30; microseconds between two event records around one graph launch.
// "Fitted": least squares over the ops of attention-pre alone (M = 16, KV = 8192) and the pairs A0, B0 and B1, E1 with
// full edges (M = 16 to 256), 18 figures in all, after everything else was set. docs/performance.md has how far off it
// is.

// A graph of one empty kernel.
constexpr double kFrameUs = 2.66;
// Graphs of 101 empty kernels in a chain take 62.9 with full and 56.6 with programmatic edges.
constexpr double kFullEdgeUs = 0.6;
constexpr double kProgrammaticEdgeUs = 0.55;
// One more store at the end of each kernel, the kernel trace's, costs that much for each kernel that another waits for.
constexpr double kCompleteUs = 0.4;
// Kernel trace of cmp: the last CTA's end to the first return of its consumers' wait is 0.85 at least.
constexpr double kWakeUs = 0.4;
// Kernel trace of cmp: A0, which waits for nobody, enters and has its inputs 0.4 to 0.5 later.
constexpr double kStartUs = 0.4;
// A trip to the L2 (docs/performance.md).
constexpr double kTripUs = 0.7;
// Fitted. What a CTA does behind its products takes trips too: reductions, scales, stores.
constexpr double kFinishUs = 2.0;
constexpr double kClusterUs = 2.0;
// Fitted. One SM takes at most 64 bytes a clock from L2, 126 GB/s at 1.98 GHz; four fifths are assumed, as for the
// persistent kernel.
constexpr double kCtaReadGbPerS = 90;
constexpr double kSmReadGbPerS = 100;
// Fitted: FP8 and FP16 products of few rows, promotion and conversion included; a sixth of what the tensor cores do.
constexpr double kCtaMacsPerNs = 1600;
// Single kernels do not tell; of 1.2, 1.5, 2, 2.5 and 4 times a CTA's rate, 2 fits whole runs best.
constexpr double kSmMacsPerNs = 2 * kCtaMacsPerNs;

// Of compute capability 9.0 and 10.x.
constexpr uint32_t kSmemPerSm = 228 * 1024;
constexpr uint32_t kSmemPerCta = 1024;
constexpr uint32_t kThreadsPerSm = 2048;
constexpr uint32_t kCtasPerSm = 32;

}  // namespace

Result<LaunchCosts> find_launch_costs(std::string_view target) {
  const TargetDesc t = MEGARTP_TRY(find_target(target));
  if (t.num_sms() == 0)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("target '{}' launches no kernels", target));
  return LaunchCosts{.num_sms = t.num_sms(),
                     .smem_per_sm = kSmemPerSm,
                     .smem_per_cta = kSmemPerCta,
                     .threads_per_sm = kThreadsPerSm,
                     .ctas_per_sm = kCtasPerSm,
                     .read_gb_per_s = t.read_gb_per_s,
                     .sm_read_gb_per_s = kSmReadGbPerS,
                     .cta_read_gb_per_s = kCtaReadGbPerS,
                     .sm_macs_per_ns = kSmMacsPerNs,
                     .cta_macs_per_ns = kCtaMacsPerNs,
                     .frame_us = kFrameUs,
                     .full_edge_us = kFullEdgeUs,
                     .programmatic_edge_us = kProgrammaticEdgeUs,
                     .complete_us = kCompleteUs,
                     .wake_us = kWakeUs,
                     .start_us = kStartUs,
                     .trip_us = kTripUs,
                     .finish_us = kFinishUs,
                     .cluster_us = kClusterUs};
}

DeviceTarget device_target(const LaunchCosts& costs) { return {costs.num_sms, costs.smem_per_sm - costs.smem_per_cta}; }

}  // namespace megartp
