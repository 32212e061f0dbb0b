// A workspace is zeroed before the wait, while a kernel two hops back may still read it.
#include "common.cuh"

extern "C" __global__ void zero_then_add(const float* x, float* workspace) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  workspace[i] = 0.0f;
  grid_wait();
  atomicAdd(workspace + (i & 63), x[i]);
}
