// The twin of no_wait_consumer: waits before its only store.
#include "common.cuh"

extern "C" __global__ void fill_positions(int* positions, int base) {
  grid_wait();
  positions[blockIdx.x * blockDim.x + threadIdx.x] = base + static_cast<int>(threadIdx.x);
  grid_trigger();
}
