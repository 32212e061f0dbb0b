// head_gate: partials[slice, m, head] = y[m, slice] . w[head, slice] over 128 hidden columns, BF16 operands, fp32 sums.
//
// One warp has 8 heads and 16 tokens: 8 mma of 16 x 8 x 16. The order of K inside a slice is free as long as both
// operands agree, so a lane reads whole 16-byte pieces straight into fragments: piece 4 c + q of a row (q = lane % 4)
// feeds steps 2 c and 2 c + 1. The weights lie in registers before the wait.
#pragma once

#include "device/frame.cuh"
#include "device/mma.cuh"
#include "device/numeric.cuh"

namespace megartp::device {

struct HeadGateParams {
  const uint4* y;   // BF16 [M, hidden]
  const uint4* w;   // BF16 [heads, hidden]
  float* partials;  // F32 [slices, M, heads]
  uint32_t m;
  uint32_t heads;
  uint32_t hidden;  // a multiple of 8
};

// What one warp has of slice `slice`: its 8 heads from `first_head`.
struct HeadGateTile {
  uint32_t slice;
  uint32_t first_head;
  uint4 b[4];

  // Weights, before the wait.
  __device__ void fetch(const HeadGateParams& p) {
    const uint32_t pieces = p.hidden / 8;
    const uint32_t head = first_head + lane_index() / 4;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint32_t piece = slice * 16 + c * 4 + lane_index() % 4;
      b[c] = head < p.heads && piece < pieces ? load_weight(p.w + uint64_t{head} * pieces + piece) : uint4{};
    }
  }
  // Rows m_begin .. m_begin + 15 that are below p.m.
  __device__ void multiply(const HeadGateParams& p, uint32_t m_begin) const {
    const uint32_t pieces = p.hidden / 8;
    const uint32_t q = lane_index() % 4;
    const uint32_t m = m_begin + lane_index() / 4;
    uint4 low[4];
    uint4 high[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint32_t piece = slice * 16 + c * 4 + q;
      low[c] = m < p.m && piece < pieces ? load_global(p.y + uint64_t{m} * pieces + piece) : uint4{};
      high[c] = m + 8 < p.m && piece < pieces ? load_global(p.y + uint64_t{m + 8} * pieces + piece) : uint4{};
    }
    float d[4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      mma_bf16_16x8(d, low[c].x, high[c].x, low[c].y, high[c].y, b[c].x, b[c].y);
      mma_bf16_16x8(d, low[c].z, high[c].z, low[c].w, high[c].w, b[c].z, b[c].w);
    }
    const uint32_t column = first_head + q * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t to_m = m + (i & 2) * 4;
      const uint32_t to_head = column + (i & 1);
      if (to_m < p.m && to_head < p.heads) p.partials[(uint64_t{slice} * p.m + to_m) * p.heads + to_head] = d[i];
    }
  }
};

// Grid: slices, M tiles of 16. A warp for every 8 heads.
template <int kThreads, int kWait>
__global__ void __launch_bounds__(kThreads) head_gate(const __grid_constant__ HeadGateParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  HeadGateTile t{blockIdx.x, threadIdx.x / 32 * 8};
  t.fetch(p);
  frame.wait_inputs();
  t.multiply(p, blockIdx.y * 16);
}

}  // namespace megartp::device
