// The twin of prefetch_mutable: only weights are prefetched before the wait.
#include "common.cuh"

struct Arguments {
  const float* activations;
  const float* weights;
  float* out;
  int columns;
};

extern "C" __global__ void gemv(Arguments a) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(a.weights + threadIdx.x * 32));
  grid_wait();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < a.columns; i += 32) sum += a.activations[i] * a.weights[blockIdx.x * a.columns + i];
  a.out[blockIdx.x * 32 + threadIdx.x] = sum;
}
