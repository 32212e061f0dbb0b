// Launched behind a programmatic edge, and by its own contract never waits.
#include "common.cuh"

extern "C" __global__ void fill_positions(int* positions, int base) {
  positions[blockIdx.x * blockDim.x + threadIdx.x] = base + static_cast<int>(threadIdx.x);
  grid_trigger();
}
