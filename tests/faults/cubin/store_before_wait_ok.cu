// The twin of store_before_wait: zeroed after the wait.
#include "common.cuh"

extern "C" __global__ void zero_then_add(const float* x, float* workspace) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  grid_wait();
  workspace[i] = 0.0f;
  atomicAdd(workspace + (i & 63), x[i]);
}
