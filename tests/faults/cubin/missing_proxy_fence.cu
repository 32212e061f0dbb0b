// Ordinary stores fill a tile in shared memory, a barrier follows, one thread lets the copy engine read it: the engine
// works through another proxy and needs a fence between.
#include "common.cuh"

extern "C" __global__ void store_tile(const float* x, float* y) {
  __shared__ alignas(128) float tile[256];
  grid_wait();
  tile[threadIdx.x] = 2.0f * x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(y + blockIdx.x * 256),
                 "r"(smem_address(tile))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
