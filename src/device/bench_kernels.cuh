// Kernels of the benchmarks' frame: nothing, a delay, and reading memory as fast as one kernel can.
#pragma once

#include "device/ptx.cuh"

namespace megartp::device {

struct EmptyParams {
  uint32_t unused;
};
template <int kUnused>
__global__ void bench_empty(EmptyParams) {}

struct DelayParams {
  uint32_t ns;
};
// Keeps the stream busy while the host issues what is to be timed.
template <int kUnused>
__global__ void bench_delay(DelayParams params) {
  const uint64_t begin = global_timer();
  while (global_timer() - begin < params.ns) {
  }
}

inline constexpr uint32_t kReadStageBytes = 16384;

struct ReadParams {
  const uint8_t* data;  // 16-byte aligned
  uint32_t num_bytes;   // a multiple of 16
};
// One CTA an SM with a ring of bulk loads whose data nobody looks at: the floor of everything that streams weights.
// Kept in L2, the data drives out what was there.
template <int kStages, bool kKeep>
__global__ void bench_read(ReadParams params) {
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ uint64_t full[kStages];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kStages; ++s) mbarrier_init(&full[s], 1);
  mbarrier_init_fence();
  const uint32_t num_pieces = ceil_div(params.num_bytes, kReadStageBytes);
  const auto load = [&](uint32_t piece, uint32_t stage) {
    const uint32_t begin = piece * kReadStageBytes;
    const uint32_t bytes = params.num_bytes - begin < kReadStageBytes ? params.num_bytes - begin : kReadStageBytes;
    mbarrier_arrive_expect(&full[stage], bytes);
    if constexpr (kKeep)
      bulk_load(ring + stage * kReadStageBytes, params.data + begin, bytes, &full[stage]);
    else
      bulk_load(ring + stage * kReadStageBytes, params.data + begin, bytes, &full[stage], kEvictFirst);
  };
  uint32_t next = blockIdx.x;
  for (int s = 0; s < kStages && next < num_pieces; ++s, next += gridDim.x) load(next, s);
  uint32_t stage = 0, parity = 0;
  for (uint32_t piece = blockIdx.x; piece < num_pieces; piece += gridDim.x) {
    mbarrier_wait(&full[stage], parity);
    if (next < num_pieces) {
      load(next, stage);
      next += gridDim.x;
    }
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

struct CompareParams {
  const uint32_t* a;
  const uint32_t* b;
  uint32_t* result;  // the number of words that differ, and the first of them
  uint32_t num_words;
};
template <int kUnused>
__global__ void bench_compare(CompareParams params) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < params.num_words; i += gridDim.x * blockDim.x) {
    if (params.a[i] == params.b[i]) continue;
    atomicAdd(&params.result[0], 1U);
    atomicMin(&params.result[1], i);
  }
}

}  // namespace megartp::device
