// indexer_score for any dims: a warp for each logit, heads ascending.
#pragma once

#include "ops/common/device/generic.cuh"

namespace megartp::device {

struct IndexerScoreGenericParams {
  const uint8_t* q;             // E4M3 [M, heads, dim]
  const float* weights;         // F32 [M, heads]
  const uint8_t* cache;         // pages of 64 keys of dim bytes, then 64 scales
  const int32_t* context_lens;  // [M]
  const int32_t* block_table;   // [R, table_width]
  const uint32_t* requests;     // of each row
  float* logits;                // F32 [M, columns]
  uint32_t m;
  uint32_t heads;
  uint32_t dim;
  uint32_t num_pages;
  uint32_t table_width;
  uint32_t columns;
};

template <int kWait>
__global__ void __launch_bounds__(kGenericThreads)
    indexer_score_generic(const __grid_constant__ IndexerScoreGenericParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint32_t lane = lane_index();
  for (uint64_t i = grid_warp(); i < uint64_t{p.m} * p.columns; i += grid_warps()) {
    const uint64_t m = i / p.columns;
    const uint32_t position = static_cast<uint32_t>(i % p.columns);
    // Lengths bound what is read of the table.
    const bool is_visible = static_cast<int32_t>(position) < p.context_lens[m] && position / 64 < p.table_width;
    const int32_t page = is_visible ? p.block_table[uint64_t{p.requests[m]} * p.table_width + position / 64] : -1;
    float v = -__int_as_float(0x7f800000);
    if (page >= 0 && page < static_cast<int32_t>(p.num_pages)) {
      const uint8_t* keys = p.cache + uint64_t(page) * 64 * (p.dim + 4);
      const uint8_t* key = keys + uint64_t{position % 64} * p.dim;
      float sum = 0.0F;
      for (uint32_t h = 0; h < p.heads; ++h) {
        const uint8_t* q = p.q + (m * p.heads + h) * p.dim;
        float dot = 0.0F;
        for (uint32_t d = lane; d < p.dim; d += 32) dot = fmaf(e4m3_value(q[d]), e4m3_value(key[d]), dot);
        sum = fmaf(p.weights[m * p.heads + h], fmaxf(warp_sum(dot), 0.0F), sum);
      }
      v = sum * *reinterpret_cast<const float*>(keys + uint64_t{64} * p.dim + position % 64 * 4);
    }
    if (lane == 0) p.logits[i] = v;
  }
}

}  // namespace megartp::device
