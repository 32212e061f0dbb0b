// The frame of an ordinary kernel: its tile is its CTA, its inputs are ready when the grid dependency wait returns.
//
// MEGARTP_FUZZ=1 adds delays at random places, MEGARTP_TRACE=1 a record a CTA of when it did what (abi/kernel_trace.h).
// Without them nothing of either is left in the code.
#pragma once

#include "abi/kernel_trace.h"
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

}  // namespace megartp::device

#if MEGARTP_TRACE
// Where the kernel's records go; the host fills it in. In constant memory: the compiler keeps it out of the way of what
// the kernel waits for, and a scan of the code sees no access that is not the kernel's own.
extern "C" {
__constant__ megartp::abi::KernelTraceTarget MEGARTP_KERNEL_TRACE_SYMBOL;
}
#endif

namespace megartp::device {

#if MEGARTP_TRACE
// What thread 0 keeps of its CTA until the end. Low words of the clock, one register each: a kernel that ran for four
// seconds would have trapped.
class CtaClock {
 public:
  __device__ void enter() { enter_ = now(); }
  __device__ void inputs() { inputs_ = now(); }
  __device__ void mark(int i) { marks_[i] = now(); }
  // Last of all.
  __device__ void write() const {
    if (threadIdx.x != 0) return;
    const uint64_t done = global_timer();
    const abi::KernelTraceTarget& target = MEGARTP_KERNEL_TRACE_SYMBOL;
    const uint32_t cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (cta >= target.num_records) return;
    const uint64_t enter = done - since(enter_, done);
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    abi::KernelTraceRecord record{enter, inputs_ == 0 ? 0 : done - since(inputs_, done), done, sm, cta, {}};
    for (uint32_t i = 0; i < abi::kKernelTraceMarks; ++i) record.marks[i] = marks_[i] == 0 ? 0 : marks_[i] - enter_;
    reinterpret_cast<abi::KernelTraceRecord*>(target.records)[cta] = record;
  }

 private:
  __device__ static uint32_t now() { return static_cast<uint32_t>(global_timer()); }
  __device__ static uint32_t since(uint32_t then, uint64_t end) { return static_cast<uint32_t>(end) - then; }

  uint32_t enter_ = 0, inputs_ = 0;
  uint32_t marks_[abi::kKernelTraceMarks] = {};
};
#endif

// kTriggersLate: dependents may enter only when trigger() has been called by every CTA, because early ones would hold
// shared memory that others need.
template <int kWait, bool kTriggersLate = false>
struct KernelFrame {
#if MEGARTP_TRACE
  mutable CtaClock clock;
  __device__ ~KernelFrame() { clock.write(); }
#endif
  // A place worth a time in the kernel trace, numbered from 0 to 3 as the kernel likes.
  __device__ void mark([[maybe_unused]] int i) const {
#if MEGARTP_TRACE
    clock.mark(i);
#endif
  }
  // First thing in a kernel, by all threads.
  __device__ void enter() const {
    fuzz_delay(1);
#if MEGARTP_TRACE
    clock.enter();
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
    clock.inputs();
#endif
  }
};

}  // namespace megartp::device
