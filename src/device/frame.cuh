// The frame of an ordinary kernel: its tile is its CTA, its inputs are ready when the grid dependency wait returns.
#pragma once

#include "device/ptx.cuh"

#ifndef MEGARTP_FUZZ
#define MEGARTP_FUZZ 0
#endif

namespace megartp::device {

#if MEGARTP_FUZZ
// Up to 4 us, different for every CTA, place and run: what a result may not depend on.
__device__ inline void fuzz_delay(uint32_t place) {
  uint64_t x = global_timer() / 1024 + place * 0x9E3779B97F4A7C15ULL +
               (blockIdx.x + 977ULL * blockIdx.y) * 0xD1B54A32D192ED03ULL;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 29;
  if ((x & 3) != 0) return;
  const uint64_t end = global_timer() + (x >> 8) % 4096;
  while (global_timer() < end) {
  }
}
#else
__device__ inline void fuzz_delay(uint32_t) {}
#endif

#ifndef MEGARTP_TRACE
#define MEGARTP_TRACE 0
#endif
#if MEGARTP_TRACE
// Development aid: when each CTA entered, had its inputs, and ended.
struct TraceRecord {
  uint64_t enter, inputs, done;
  uint64_t marks[6];
  uint32_t signature, cta, sm, pad;
};
__device__ TraceRecord* trace_records;
__device__ uint32_t trace_count;
#endif

// kTriggersLate: dependents may enter only when trigger() has been called by every CTA, because early ones would hold
// shared memory that others need.
template <int kWait, bool kTriggersLate = false>
struct KernelFrame {
#if MEGARTP_TRACE
  mutable uint64_t t_enter = 0, t_inputs = 0;
  mutable uint32_t at = 0;
  mutable uint64_t marks[6] = {};
  __device__ void mark(int i) const { marks[i] = global_timer(); }
  __device__ ~KernelFrame() {
    if (threadIdx.x != 0) return;
    uint32_t sm, clusters;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(clusters));
    trace_records[at] = {t_enter,
                         t_inputs,
                         global_timer(),
                         {marks[0], marks[1], marks[2], marks[3], marks[4], marks[5]},
                         gridDim.x * gridDim.y * 100000 + blockDim.x * 10 + clusters,
                         blockIdx.x,
                         sm,
                         0};
  }
#else
  __device__ void mark(int) const {}
#endif
  // First thing in a kernel, by all threads.
  __device__ void enter() const {
    fuzz_delay(1);
#if MEGARTP_TRACE
    t_enter = global_timer();
    if (threadIdx.x == 0) at = atomicAdd(&trace_count, 1);
#endif
    if constexpr (!kTriggersLate) grid_trigger();
    if constexpr (kWait == kWaitEntry) grid_wait();
  }
  __device__ void trigger() const {
    if constexpr (kTriggersLate) grid_trigger();
  }
  // After barriers and descriptors are set up, by all threads.
  __device__ void after_prologue() const {
    if constexpr (kWait == kWaitPrologue) grid_wait();
  }
  // By every thread before its first read of what another kernel wrote, and before its first write.
  __device__ void wait_inputs() const {
    fuzz_delay(2);
    if constexpr (kWait == kWaitPrefetch) grid_wait();
#if MEGARTP_TRACE
    t_inputs = global_timer();
#endif
  }
};

}  // namespace megartp::device
