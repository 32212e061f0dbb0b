// There is a barrier, but nobody has waited when the block passes it.
#include "common.cuh"

extern "C" __global__ void add_bias(const float* x, const float* bias, float* y) {
  __shared__ float shared_bias[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  shared_bias[threadIdx.x] = bias[threadIdx.x];
  __syncthreads();
  const float v = *static_cast<const volatile float*>(x + i);
  if (threadIdx.x == 0) grid_wait();
  y[i] = v + shared_bias[threadIdx.x ^ 1];
}
