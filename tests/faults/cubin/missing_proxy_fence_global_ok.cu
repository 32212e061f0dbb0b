// The twin of missing_proxy_fence_global: each writer fences between its stores and the barrier.
#include "common.cuh"

extern "C" __global__ void write_then_fetch(const float* x, float* row, float* y) {
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) uint64_t bar;
  grid_wait();
  row[threadIdx.x] = x[threadIdx.x] + 1.0f;
  __threadfence();
  asm volatile("fence.proxy.async.global;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&bar)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(smem_address(&bar)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(
                     smem_address(tile)),
                 "l"(row), "r"(smem_address(&bar))
                 : "memory");
  }
  __syncthreads();
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra AGAIN;\n}" ::
          "r"(smem_address(&bar))
      : "memory");
  y[threadIdx.x] = tile[threadIdx.x ^ 1];
}
