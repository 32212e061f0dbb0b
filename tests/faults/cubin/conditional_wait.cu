// The wait hangs on a run-time flag: launched with the attribute and the flag off, the kernel reads too early.
#include "common.cuh"

extern "C" __global__ void scale(const float* x, float* y, int pdl) {
  if (pdl != 0) grid_wait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i];
}
