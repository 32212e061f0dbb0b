// The contract promises that dependents start only after this kernel's own wait returned; the trigger stands first.
#include "common.cuh"

extern "C" __global__ void copy_rows(const float* x, float* y) {
  grid_trigger();
  grid_wait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}
