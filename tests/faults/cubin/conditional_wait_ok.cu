// The twin of conditional_wait: the wait costs nothing where nothing is awaited, so it stands there without a flag.
#include "common.cuh"

extern "C" __global__ void scale(const float* x, float* y, int pdl) {
  grid_wait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = pdl != 0 ? 2.0f * x[i] : x[i];
}
