// Tensor copies by two roles, see split_loader.cu.
#pragma once

#include <cuda.h>

#include "common.cuh"

__device__ __forceinline__ void load_tile(const CUtensorMap* map, void* tile, uint64_t* bar, int x) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(smem_address(bar)) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          smem_address(tile)),
      "l"(map), "r"(x), "r"(0), "r"(smem_address(bar))
      : "memory");
}
__device__ __forceinline__ void wait_for(uint64_t* bar) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra AGAIN;\n}" ::
          "r"(smem_address(bar))
      : "memory");
}

extern "C" __global__ void multiply(const __grid_constant__ CUtensorMap weights,
                                    const __grid_constant__ CUtensorMap activations, float* out) {
  __shared__ alignas(128) float tile_w[256];
  __shared__ alignas(128) float tile_x[256];
  __shared__ alignas(8) uint64_t full[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&full[i])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&weights) : "memory");
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
#ifdef MEGARTP_SWAP_ROLES
  const CUtensorMap* early = &activations;
  const CUtensorMap* late = &weights;
#else
  const CUtensorMap* early = &weights;
  const CUtensorMap* late = &activations;
#endif
  if (warp == 0) {
    if (threadIdx.x == 0) load_tile(early, tile_w, &full[0], blockIdx.x);
  } else if (warp == 1) {
    if (threadIdx.x == 32) {
      grid_wait();
      load_tile(late, tile_x, &full[1], blockIdx.x);
      grid_trigger();
    }
  } else {
    wait_for(&full[0]);
    wait_for(&full[1]);
    out[blockIdx.x * 256 + threadIdx.x] = tile_w[threadIdx.x & 255] * tile_x[threadIdx.x & 255];
  }
}
