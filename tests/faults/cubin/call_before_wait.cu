// A function that is called through a pointer before the wait: nothing shows what it touches.
#include "common.cuh"

typedef float (*Activation)(float);
__device__ float relu(float v) { return fmaxf(v, 0.0f); }
__device__ float halve(float v) { return 0.5f * v; }
__device__ Activation activations[2] = {relu, halve};

extern "C" __global__ void activate(const float* x, float* y, int kind) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float bias = activations[kind & 1](1.0f);
  grid_wait();
  y[i] = x[i] + bias;
}
