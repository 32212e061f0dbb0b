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
  uint64_t x = global_timer() / 1024 + place * 0x9E3779B97F4A7C15ULL + (blockIdx.x + 977ULL * blockIdx.y) * 0xD1B54A32D192ED03ULL;
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

template <int kWait>
struct KernelFrame {
  // First thing in a kernel, by all threads.
  __device__ void enter() const {
    fuzz_delay(1);
    grid_trigger();
    if constexpr (kWait == kWaitEntry) grid_wait();
  }
  // After barriers and descriptors are set up, by all threads.
  __device__ void after_prologue() const {
    if constexpr (kWait == kWaitPrologue) grid_wait();
  }
  // By every thread before its first read of what another kernel wrote, and before its first write.
  __device__ void wait_inputs() const {
    fuzz_delay(2);
    if constexpr (kWait == kWaitPrefetch) grid_wait();
  }
};

}  // namespace megartp::device
