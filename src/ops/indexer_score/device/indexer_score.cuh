// indexer_score: logits[m, s] = k_scale[s] * sum over heads of w[m, h] * max(0, q[m, h] . k[s]) for visible s, -inf elsewhere.
//
// Keys are wgmma's M (a page of 64 a warpgroup), the (token, head) pairs of a block of tokens its N = 128. A thread has two keys and,
// for each token, heads / 4 pairs, adds them in ascending order and then over the four lanes that share a key.
#pragma once

#include "device/frame.cuh"
#include "device/numeric.cuh"
#include "device/wgmma.cuh"

namespace megartp::device {

struct IndexerScoreParams {
  TensorMap q_map;       // E4M3 [M * heads, 128], box {128, 128}
  TensorMap key_map;     // E4M3 [pages, 64, 128] in the cache's pages of 8448 bytes, box {128, 64, 1}
  const float* weights;  // F32 [M, heads]
  const uint8_t* cache;
  const int32_t* context_lens;  // [M]
  const int32_t* block_table;   // [R, table_width]
  const uint32_t* blocks;       // [token blocks, 4]: request, first row, rows, 0
  float* logits;                // F32 [M, columns]
  uint32_t num_pages;
  uint32_t table_width;
  uint32_t columns;
  uint32_t pages_per_cta;
  uint32_t chunks;              // CTAs of one token block
};

inline constexpr int kScoreStages = 4;
inline constexpr int kScorePairs = 128;
struct ScoreSmem {
  uint8_t* q;       // 16 KiB
  uint8_t* keys;    // stages of 8 KiB
  float* scales;    // stages of 64
  uint64_t* full;   // stages, then q
  uint64_t* empty;
  static constexpr uint32_t kBytes = 1024 + kScorePairs * 128 + kScoreStages * (8192 + 256) + 128;
  __device__ explicit ScoreSmem(uint8_t* dynamic) {
    q = dynamic + ((1024 - (shared_address(dynamic) & 1023U)) & 1023U);
    keys = q + kScorePairs * 128;
    scales = reinterpret_cast<float*>(keys + kScoreStages * 8192);
    full = reinterpret_cast<uint64_t*>(scales + kScoreStages * 64);
    empty = full + kScoreStages + 1;
  }
};

inline constexpr int kScoreThreads = 288;  // two consumer warpgroups, one loader warp

// Grid: token blocks x chunks of pages (chunks innermost). kHeads: 8, 16, 32, 64 or 128.
template <int kHeads, int kWait>
__global__ void __launch_bounds__(kScoreThreads) indexer_score(const __grid_constant__ IndexerScoreParams p) {
  constexpr int kTokens = kScorePairs / kHeads;
  extern __shared__ uint8_t dynamic[];
  const ScoreSmem smem(dynamic);
  const KernelFrame<kWait> frame;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kScoreStages; ++s) {
      mbarrier_init(&smem.full[s], 1);
      mbarrier_init(&smem.empty[s], 4);
    }
    mbarrier_init(&smem.full[kScoreStages], 1);
    mbarrier_init_fence();
  }
  frame.enter();
  __syncthreads();
  frame.after_prologue();

  const uint32_t* block = p.blocks + blockIdx.x / p.chunks * 4;
  const uint32_t request = block[0];
  const uint32_t row_begin = block[1];
  const uint32_t row_count = block[2];
  const uint32_t first_page = blockIdx.x % p.chunks * p.pages_per_cta;
  const int32_t* table = p.block_table + uint64_t{request} * p.table_width;
  // Arguments: constant while anything runs. Lengths bound what is read of table and cache.
  int32_t longest = 0;
  for (uint32_t i = 0; i < row_count; ++i) longest = max(longest, p.context_lens[row_begin + i]);
  const uint32_t visible_pages = min(ceil_div(min(static_cast<uint32_t>(max(longest, 0)), p.columns), 64), p.table_width);
  const uint32_t page_end = min(first_page + p.pages_per_cta, ceil_div(p.columns, 64));

  if (threadIdx.x >= 256) {
    if (threadIdx.x != 256 || first_page >= visible_pages) return;
    frame.wait_inputs();
    // q and the newest keys were written by ordinary stores; the copy engine reads them.
    asm volatile("fence.proxy.async.global;" ::: "memory");
    mbarrier_arrive_expect(&smem.full[kScoreStages], kScorePairs * 128);
    tma_load_2d(smem.q, &p.q_map, 0, row_begin * kHeads, &smem.full[kScoreStages]);
    for (uint32_t i = 0; first_page + i < min(page_end, visible_pages); ++i) {
      const uint32_t stage = i % kScoreStages;
      if (i >= kScoreStages) mbarrier_wait(&smem.empty[stage], (i / kScoreStages - 1) & 1);
      const int32_t page = table[first_page + i];
      if (page < 0 || page >= p.num_pages) {
        mbarrier_arrive(&smem.full[stage]);
        continue;
      }
      mbarrier_arrive_expect(&smem.full[stage], 8192 + 256);
      tma_load_3d(smem.keys + stage * 8192, &p.key_map, 0, 0, page, &smem.full[stage]);
      bulk_load(smem.scales + stage * 64, p.cache + uint64_t(page) * 8448 + 8192, 256, &smem.full[stage]);
    }
    return;
  }

  const uint32_t q = lane_index() % 4;
  const uint32_t key = threadIdx.x % 128 / 32 * 16 + lane_index() / 4;
  int32_t visible[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) visible[t] = t < row_count ? p.context_lens[row_begin + t] : 0;
  frame.wait_inputs();
  float w[kScorePairs / 8][2];
#pragma unroll
  for (int j = 0; j < kScorePairs / 8; ++j) {
    const uint32_t pair = 8 * j + 2 * q;
    const bool is_there = pair / kHeads < row_count;
    const uint2 v = is_there ? load_global(reinterpret_cast<const uint2*>(p.weights + row_begin * kHeads + pair)) : uint2{};
    w[j][0] = __uint_as_float(v.x);
    w[j][1] = __uint_as_float(v.y);
  }
  if (first_page < visible_pages) mbarrier_wait(&smem.full[kScoreStages], 0);
  for (uint32_t i = threadIdx.x / 128; first_page + i < page_end; i += 2) {
    const uint32_t page_index = first_page + i;
    float sums[kTokens][2] = {};
    float scale[2] = {};
    bool is_there = page_index < visible_pages;
    if (is_there) {
      const uint32_t stage = i % kScoreStages;
      const int32_t page = table[page_index];
      is_there = page >= 0 && page < p.num_pages;
      mbarrier_wait(&smem.full[stage], (i / kScoreStages) & 1);
      if (is_there) {
        float d[kScorePairs / 2];
        const uint64_t keys = wgmma_descriptor(smem.keys + stage * 8192);
        const uint64_t pairs = wgmma_descriptor(smem.q);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) WgmmaFp8<kScorePairs>::run(d, keys + 2 * k, pairs + 2 * k, k != 0);
        wgmma_commit();
        scale[0] = smem.scales[stage * 64 + key];
        scale[1] = smem.scales[stage * 64 + key + 8];
        wgmma_wait<0>();
        wgmma_hold(d);
#pragma unroll
        for (int j = 0; j < kScorePairs / 8; ++j) {
          const int t = j * 8 / kHeads;
          sums[t][0] = fmaf(w[j][0], fmaxf(d[4 * j], 0.0F), sums[t][0]);
          sums[t][0] = fmaf(w[j][1], fmaxf(d[4 * j + 1], 0.0F), sums[t][0]);
          sums[t][1] = fmaf(w[j][0], fmaxf(d[4 * j + 2], 0.0F), sums[t][1]);
          sums[t][1] = fmaf(w[j][1], fmaxf(d[4 * j + 3], 0.0F), sums[t][1]);
        }
      }
      if (lane_index() == 0) mbarrier_arrive(&smem.empty[stage]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float v = sums[t][r];
        v += __shfl_xor_sync(0xffffffffU, v, 1);
        v += __shfl_xor_sync(0xffffffffU, v, 2);
        const uint32_t position = page_index * 64 + key + 8 * r;
        if (t % 4 == q && t < row_count && position < p.columns)
          p.logits[uint64_t{row_begin + t} * p.columns + position] =
              is_there && static_cast<int32_t>(position) < visible[t] ? v * scale[r] : -__int_as_float(0x7f800000);
      }
    }
  }
}

}  // namespace megartp::device
