// One kernel that waits unless MEGARTP_NO_GRID_DEPENDENCY is defined.
#pragma once

#include "common.cuh"

extern "C" __global__ void accumulate(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef MEGARTP_NO_GRID_DEPENDENCY
  grid_wait();
#endif
  y[i] += x[i];
}
