// PTX that CUDA C++ has no spelling for. One function an instruction; orderings are stated where they are used.
#pragma once

#include "device/types.cuh"

namespace megartp::device {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline uint32_t lane_index() { return threadIdx.x & 31U; }
// The same number, but the compiler cannot know: it computes what follows from it where that is needed, and not once
// before a loop around it, in registers that everything else in the loop then lacks.
__device__ inline uint32_t opaque(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
// The same in all lanes, and the compiler knows it.
__device__ inline uint32_t warp_index() { return __shfl_sync(0xffffffffU, threadIdx.x / 32, 0); }
__device__ inline uint64_t global_timer() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// --- programmatic dependent launch

// Returns when all grids that this one depends on have ended and what they wrote can be seen.
__device__ inline void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Dependent grids may start once every CTA has come here or has ended. Says nothing about data.
__device__ inline void grid_trigger() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// --- mbarriers

__device__ inline void mbarrier_init(uint64_t* bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the async proxy; the CTA still has to pass a barrier.
__device__ inline void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void mbarrier_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ inline void mbarrier_arrive_expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
               : "memory");
}
__device__ inline bool mbarrier_try_wait(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(shared_address(bar)), "r"(parity)
               : "memory");
  return done != 0;
}
// The same at once: mbarrier_try_wait() sleeps for up to a good part of a second while the phase is open.
__device__ inline bool mbarrier_test_wait(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(shared_address(bar)), "r"(parity)
               : "memory");
  return done != 0;
}
// No wait in a kernel is for ever: after two seconds the kernel traps and the launch reports an error.
inline constexpr uint64_t kSpinDeadlineNs = 2000000000ULL;
__device__ inline void mbarrier_wait(uint64_t* bar, uint32_t parity) {
  if (mbarrier_try_wait(bar, parity)) return;
  const uint64_t begin = global_timer();
  while (!mbarrier_try_wait(bar, parity))
    if (global_timer() - begin > kSpinDeadlineNs) __trap();
}

// --- copies

// Orders earlier generic accesses to shared memory before later ones of the async proxy (copy engine, wgmma).
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same of global memory: what ordinary stores wrote, the copy engine may read.
__device__ inline void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// The same of both.
__device__ inline void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

// Four bytes, by this thread, without waiting.
__device__ inline void copy_async4(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// This thread arrives when its copy_async4()s so far have landed.
__device__ inline void arrive_after_copies(uint64_t* bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}
// 16-byte aligned, a multiple of 16 bytes.
__device__ inline void prefetch_l2(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Weights: read once, so L2 need not keep them.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000ULL;

__device__ inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* bar, uint64_t hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(bar)), "l"(hint)
      : "memory");
}
__device__ inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(bar))
               : "memory");
}
__device__ inline void tma_prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void tma_load_2d(void* to, const TensorMap* map, uint32_t x, uint32_t y, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(shared_address(bar))
      : "memory");
}
__device__ inline void tma_load_2d(void* to, const TensorMap* map, uint32_t x, uint32_t y, uint64_t* bar,
                                   uint64_t hint) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], "
      "[%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(shared_address(bar)), "l"(hint)
      : "memory");
}
__device__ inline void tma_load_3d(void* to, const TensorMap* map, uint32_t x, uint32_t y, uint32_t z, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(bar))
      : "memory");
}

// --- barriers of part of a CTA, and of clusters

__device__ inline void named_barrier(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Without memory ordering (the releasing form costs a fence of the whole GPU): for lifetimes, and after
// mbarrier_init_fence().
__device__ inline void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// From this CTA's shared memory to the same CTA's or another's of the cluster: `to` and `bar` are given as addresses in
// this CTA.
__device__ inline void cluster_copy(void* to, const void* from, uint32_t bytes, uint64_t* bar, uint32_t rank) {
  uint32_t remote_to, remote_bar;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_to) : "r"(shared_address(to)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_bar) : "r"(shared_address(bar)), "r"(rank));
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote_to),
      "r"(shared_address(from)), "r"(bytes), "r"(remote_bar)
      : "memory");
}

// --- memory

// Free to move among arithmetic, not across barriers.
__device__ inline uint4 load_shared(const void* p) {
  __builtin_assume(__isShared(p));
  return *static_cast<const uint4*>(p);
}
// Reads of what another kernel wrote: ordinary loads, never through the read-only path, which the compiler may lift
// above a wait.
__device__ inline uint4 load_global(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ inline uint2 load_global(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ inline float4 load_global(const float4* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ inline float load_global(const float* p) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline int32_t load_global(const int32_t* p) {
  int32_t v;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// Weights: read once and constant while anything runs. Ordinary loads too: the compiler may sink those of the read-only
// path below a wait, where they come late.
__device__ inline uint4 load_weight(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ inline uint2 load_weight(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}

}  // namespace megartp::device
