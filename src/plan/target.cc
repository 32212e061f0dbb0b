#include "plan/target.h"

#include <algorithm>
#include <array>
#include <thread>

#include <fmt/format.h>

#include "abi/mega.h"
#include "ops/mega_op.h"

namespace megartp {
namespace {

TargetDesc cpu_target() {
  const uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
  // Orders of magnitude of one current server core; the packers only compare tasks with one another.
  return {.name = "cpu",
          .arch = "cpu",
          .num_workers = threads,
          .read_gb_per_s = 8.0 * threads,
          .gflops = 20.0 * threads,
          .task_overhead_us = 1.0,
          .event_latency_us = 0.2,
          .signal_us = 0.02,
          .contended_add_us = 0.02,
          .launch_us = 50};  // waking sleeping threads
}

// Event latency: 0.6 us from a release add on one SM to an acquire load on another, measured on an H200; taken for all.
// h200: 4350 GB/s measured with a plain read of 1 GiB; h100 and b300 as specified.
constexpr double kGpuEventLatencyUs = 0.6;
constexpr double kGpuTaskOverheadUs = 0.6;
// Assumed: a release add is issued in some tens of nanoseconds; one L2 slice adds to one address every two.
constexpr double kGpuSignalUs = 0.05;
constexpr double kGpuContendedAddUs = 0.002;
// An SM takes at most 64 bytes a clock from L2, 126 GB/s at 1.98 GHz; assumed: a plain ring of copies gets four fifths.
constexpr double kGpuWorkerGbPerS = 100;
// Twelve pages of 16 KiB, of the thirteen that fit.
constexpr uint32_t kGpuPrefetchBytes = 12 * 16384;
// An empty persistent kernel in a CUDA graph, between two event records: 3.6 us on an H200, of which 1.28 are the
// records'; a timed run has them too.
constexpr double kGpuLaunchUs = 3.6;

const std::array<TargetDesc, 4>& presets() {
  static const std::array<TargetDesc, 4> targets{
      cpu_target(),
      TargetDesc{.name = "h200",
                 .arch = "sm_90a",
                 .num_workers = 132,
                 .smem_bytes = 232448,
                 .read_gb_per_s = 4350,
                 .gflops = 1979e3,
                 .task_overhead_us = kGpuTaskOverheadUs,
                 .event_latency_us = kGpuEventLatencyUs,
                 .signal_us = kGpuSignalUs,
                 .contended_add_us = kGpuContendedAddUs,
                 .worker_gb_per_s = kGpuWorkerGbPerS,
                 .prefetch_bytes = kGpuPrefetchBytes,
                 .launch_us = kGpuLaunchUs},
      TargetDesc{.name = "h100",
                 .arch = "sm_90a",
                 .num_workers = 132,
                 .smem_bytes = 232448,
                 .read_gb_per_s = 3350,
                 .gflops = 1979e3,
                 .task_overhead_us = kGpuTaskOverheadUs,
                 .event_latency_us = kGpuEventLatencyUs,
                 .signal_us = kGpuSignalUs,
                 .contended_add_us = kGpuContendedAddUs,
                 .worker_gb_per_s = kGpuWorkerGbPerS,
                 .prefetch_bytes = kGpuPrefetchBytes,
                 .launch_us = kGpuLaunchUs},
      TargetDesc{.name = "b300",
                 .arch = "sm_103a",
                 .num_workers = 148,
                 .smem_bytes = 232448,
                 .read_gb_per_s = 8000,
                 .gflops = 4500e3,
                 .task_overhead_us = kGpuTaskOverheadUs,
                 .event_latency_us = kGpuEventLatencyUs,
                 .signal_us = kGpuSignalUs,
                 .contended_add_us = kGpuContendedAddUs,
                 .worker_gb_per_s = kGpuWorkerGbPerS,
                 .prefetch_bytes = kGpuPrefetchBytes,
                 .launch_us = kGpuLaunchUs},
  };
  return targets;
}

}  // namespace

std::span<const TargetDesc> target_presets() { return presets(); }

Result<TargetDesc> find_target(std::string_view name) {
  std::string known;
  for (const TargetDesc& t : presets()) {
    if (t.name == name) return t;
    known += (known.empty() ? "" : ", ") + t.name;
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("unknown target '{}'; known: {}", name, known));
}

TargetDesc mega_target(TargetDesc chip) {
  if (chip.num_sms() == 0) return chip;
  // On an H200, from traces: an event, from when results are stored until a loader has seen it; what of a tile's
  // weights comes while its worker waits for inputs or does another tile, by main_q's tiles, which take 7 us, not 12.6.
  constexpr double kEventUs = 1.7;
  constexpr double kHiddenLoads = 0.55;
  // Of ops that say nothing (MegaOpInfo::task_us).
  constexpr double kTaskUs = 3.0;
  chip.workers_per_sm = abi::kMegaCtasPerSm;
  chip.num_workers *= abi::kMegaCtasPerSm;
  chip.worker_gb_per_s /= abi::kMegaCtasPerSm;
  chip.smem_bytes = abi::kMegaSmemBytes;
  chip.prefetch_bytes = abi::kMegaPages * abi::kMegaPageBytes;
  chip.task_overhead_us = kTaskUs;
  chip.event_latency_us = kEventUs;
  chip.hidden_loads = kHiddenLoads;
  for (const MegaOpInfo* op : mega_ops())
    if (op->task_us > 0) chip.op_overhead_us.emplace_back(op->opcode, op->task_us);
  return chip;
}

EventCosts event_costs(const TargetDesc& target, uint32_t num_workers) {
  return {.num_workers = num_workers != 0 ? num_workers : target.num_workers,
          .read_gb_per_s = target.read_gb_per_s,
          .gflops = target.gflops,
          .task_overhead_us = target.task_overhead_us,
          .signal_us = target.signal_us,
          .contended_add_us = target.contended_add_us};
}

}  // namespace megartp
