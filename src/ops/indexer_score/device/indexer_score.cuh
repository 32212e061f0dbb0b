// indexer_score: logits[m, s] = k_scale[s] * sum over heads of w[m, h] * max(0, q[m, h] . k[s]) for visible s, -inf
// elsewhere.
//
// Keys are wgmma's M (a page of 64), the (token, head) pairs of a block of tokens its N = 128. A thread has two keys
// and, for each token, heads / 4 pairs; it adds them in ascending order and then over the four lanes that share a key.
// A loader warp brings q and the pages.
#pragma once

#include "device/frame.cuh"
#include "device/numeric.cuh"
#include "device/wgmma.cuh"
#include "ops/indexer_score/device/indexer_score_layout.h"

namespace megartp::device {

struct IndexerScoreParams {
  TensorMap q_map;       // E4M3 [M * heads, 128], box {128, 128}
  TensorMap key_map;     // E4M3 [pages, 64, 128] in the cache's pages of 8448 bytes, box {128, 64, 1}
  const float* weights;  // F32 [M, heads]
  const uint8_t* cache;
  const int32_t* context_lens;  // [M]
  const int32_t* block_table;   // [R, table_width]
  const uint32_t*
      blocks;     // token blocks: request | rows << 16, then first row; used when they are more than the inline ones
  float* logits;  // F32 [M, columns]
  uint32_t inline_blocks[kScoreInlineBlocks];  // request | rows << 8 | first row << 16
  uint32_t num_pages;
  uint32_t table_width;
  uint32_t columns;
  uint32_t pages_per_cta;
  uint32_t chunks;  // CTAs of one token block
};

struct ScoreSmem {
  uint8_t* q;      // 16 KiB
  uint8_t* keys;   // stages of 8 KiB
  float* scales;   // stages of 64
  uint64_t* full;  // stages, then q
  uint64_t* empty;
  uint32_t* is_there;  // stages: 0 for a page outside the cache
  float2* weights;     // of pairs of pairs
  __device__ explicit ScoreSmem(uint8_t* dynamic) {
    q = dynamic + ((1024 - (shared_address(dynamic) & 1023U)) & 1023U);
    keys = q + kScorePairs * 128;
    scales = reinterpret_cast<float*>(keys + kScoreStages * 8192);
    full = reinterpret_cast<uint64_t*>(scales + kScoreStages * 64);
    empty = full + kScoreStages + 1;
    is_there = reinterpret_cast<uint32_t*>(empty + kScoreStages);
    weights = reinterpret_cast<float2*>(reinterpret_cast<uint8_t*>(full) + 256);
  }
};

// Adds what the four lanes of a key have and stores the sums of tokens q, q + 4, ...: lanes exchange halves, so that
// each ends up with the tokens that it stores. `position` is that of the lane's first key; the second is 8 further.
template <int kTokens>
__device__ inline void store_scores(const IndexerScoreParams& p, const float (&sums)[kTokens][2],
                                    const float (&scale)[2], bool is_there, uint32_t position, uint32_t row_begin,
                                    uint32_t row_count, const int32_t (&visible)[(kTokens + 3) / 4]) {
  const uint32_t q = lane_index() % 4;
  const bool is_odd = (q & 1) != 0;
  const bool is_high = (q & 2) != 0;
#pragma unroll
  for (int group = 0; group < (kTokens + 3) / 4; ++group) {
    float v[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float s[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) s[t] = group * 4 + t < kTokens ? sums[(group * 4 + t) % kTokens][r] : 0.0F;
      const float low = (is_odd ? s[1] : s[0]) + __shfl_xor_sync(0xffffffffU, is_odd ? s[0] : s[1], 1);
      const float high = (is_odd ? s[3] : s[2]) + __shfl_xor_sync(0xffffffffU, is_odd ? s[2] : s[3], 1);
      v[r] = (is_high ? high : low) + __shfl_xor_sync(0xffffffffU, is_high ? low : high, 2);
    }
    const uint32_t token = group * 4 + q;
    if (token >= row_count || token >= kTokens) continue;
    float* out = p.logits + uint64_t{row_begin + token} * p.columns;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t at = position + 8 * r;
      if (at < p.columns)
        out[at] = is_there && static_cast<int32_t>(at) < visible[group] ? v[r] * scale[r] : -__int_as_float(0x7f800000);
    }
  }
}

// By the loader warp: q, then pages [first_page, end).
template <int kHeads, class Frame>
__device__ inline void load_pages(const IndexerScoreParams& p, const ScoreSmem& smem, const int32_t* table,
                                  uint32_t row_begin, uint32_t first_page, uint32_t end, const Frame& frame) {
  const uint32_t lane = lane_index();
  if (lane == 0) {
    tma_prefetch_map(&p.q_map);
    tma_prefetch_map(&p.key_map);
  }
  const uint32_t count = end - first_page;
  int32_t pages = lane < count ? table[first_page + lane] : -1;
  frame.wait_inputs();
  if (lane == 0) {
    // q and the newest keys were written by ordinary stores; the copy engine reads them.
    fence_async_global();
    mbarrier_arrive_expect(&smem.full[kScoreStages], kScorePairs * 128);
    tma_load_2d(smem.q, &p.q_map, 0, row_begin * kHeads, &smem.full[kScoreStages]);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (i != 0 && i % 32 == 0) pages = i + lane < count ? table[first_page + i + lane] : -1;
    const int32_t page = __shfl_sync(0xffffffffU, pages, i % 32);
    if (lane != 0) continue;
    const uint32_t stage = i % kScoreStages;
    if (i >= kScoreStages) mbarrier_wait(&smem.empty[stage], (i / kScoreStages - 1) & 1);
    const bool is_valid = page >= 0 && page < p.num_pages;
    smem.is_there[stage] = is_valid ? 1 : 0;
    if (is_valid) {
      mbarrier_arrive_expect(&smem.full[stage], 8192 + 256);
      tma_load_3d(smem.keys + stage * 8192, &p.key_map, 0, 0, page, &smem.full[stage]);
      bulk_load(smem.scales + stage * 64, p.cache + uint64_t(page) * 8448 + 8192, 256, &smem.full[stage]);
    } else {
      mbarrier_arrive(&smem.full[stage]);
    }
  }
}

// By a warpgroup: starts d = keys of a page x pairs.
__device__ inline void start_page(const uint8_t* keys, const uint8_t* pairs, float (&d)[kScorePairs / 2]) {
  wgmma_fence();
  wgmma_block<kScorePairs>(d, keys, pairs);
  wgmma_commit();
}
// Adds this lane's two pairs of tile `j`, whose weights are `w`, to the sums of its two keys.
__device__ inline void add_pairs(const float2& w, const float (&d)[kScorePairs / 2], int j, float (&sums)[2]) {
  sums[0] = fmaf(w.x, fmaxf(d[4 * j], 0.0F), sums[0]);
  sums[0] = fmaf(w.y, fmaxf(d[4 * j + 1], 0.0F), sums[0]);
  sums[1] = fmaf(w.x, fmaxf(d[4 * j + 2], 0.0F), sums[1]);
  sums[1] = fmaf(w.y, fmaxf(d[4 * j + 3], 0.0F), sums[1]);
}

// By the consumers: adds to `sums` what this lane has of page `i` of the CTA, and fills `scale`, for keys `key` and
// `key` + 8. False when the page is not in the cache.
template <int kHeads>
__device__ inline bool score_page(const ScoreSmem& smem, uint32_t i, uint32_t key,
                                  float (&sums)[kScorePairs / kHeads][2], float (&scale)[2]) {
  const uint32_t stage = i % kScoreStages;
  mbarrier_wait(&smem.full[stage], (i / kScoreStages) & 1);
  const bool is_there = smem.is_there[stage] != 0;
  float d[kScorePairs / 2];
  start_page(smem.keys + stage * 8192, smem.q, d);
  scale[0] = smem.scales[stage * 64 + key];
  scale[1] = smem.scales[stage * 64 + key + 8];
  wgmma_wait<0>();
  wgmma_hold(d);
  if (lane_index() == 0) mbarrier_arrive(&smem.empty[stage]);
#pragma unroll
  for (int j = 0; j < kScorePairs / 8; ++j)
    add_pairs(smem.weights[4 * j + lane_index() % 4], d, j, sums[j * 8 / kHeads]);
  return is_there;
}

// Grid: token blocks x chunks of pages (chunks innermost). kHeads: 8, 16, 32, 64 or 128. kInline: the
// blocks are parameters.
template <int kHeads, bool kInline, int kWait>
__global__ void __launch_bounds__(kScoreThreads, 4) indexer_score(const __grid_constant__ IndexerScoreParams p) {
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

  const uint32_t block = blockIdx.x / p.chunks;
  uint32_t request, row_begin, row_count;
  if constexpr (kInline) {
    const uint32_t word = p.inline_blocks[block];
    request = word & 0xffU;
    row_count = word >> 8 & 0xffU;
    row_begin = word >> 16;
  } else {
    const uint2 words = load_weight(reinterpret_cast<const uint2*>(p.blocks) + block);
    request = words.x & 0xffffU;
    row_count = words.x >> 16;
    row_begin = words.y;
  }
  const uint32_t first_page = blockIdx.x % p.chunks * p.pages_per_cta;
  const int32_t* table = p.block_table + uint64_t{request} * p.table_width;
  // Arguments: constant while anything runs. Lengths bound what is read of table and cache.
  const uint32_t lane = lane_index();
  const int32_t length = lane < row_count ? p.context_lens[row_begin + lane] : 0;  // kTokens <= 16
  const uint32_t longest = __reduce_max_sync(0xffffffffU, max(length, 0));
  const uint32_t visible_pages = min(ceil_div(min(longest, p.columns), 64), p.table_width);
  const uint32_t page_end = min(first_page + p.pages_per_cta, ceil_div(p.columns, 64));

  if (warp_index() == 4) {
    if (first_page < visible_pages)
      load_pages<kHeads>(p, smem, table, row_begin, first_page, min(page_end, visible_pages), frame);
  } else {
    const uint32_t q = lane % 4;
    const uint32_t key = warp_index() * 16 + lane / 4;
    frame.wait_inputs();
    if (threadIdx.x < kScorePairs / 2) {
      const bool is_there = threadIdx.x * 2 / kHeads < row_count;
      const uint2 v = is_there
                          ? load_global(reinterpret_cast<const uint2*>(p.weights + row_begin * kHeads) + threadIdx.x)
                          : uint2{};
      smem.weights[threadIdx.x] = float2{__uint_as_float(v.x), __uint_as_float(v.y)};
    }
    named_barrier(1, 128);
    frame.mark(0);
    // Lengths of the tokens that this lane stores.
    int32_t visible[(kTokens + 3) / 4];
#pragma unroll
    for (int i = 0; i < (kTokens + 3) / 4; ++i) visible[i] = __shfl_sync(0xffffffffU, length, i * 4 + q);
    if (first_page < visible_pages) mbarrier_wait(&smem.full[kScoreStages], 0);
    frame.mark(1);
    for (uint32_t i = 0; first_page + i < page_end; ++i) {
      const uint32_t page_index = first_page + i;
      float sums[kTokens][2] = {};
      float scale[2] = {};
      bool is_there = page_index < visible_pages;
      if (is_there) {
        is_there = score_page<kHeads>(smem, i, key, sums, scale);
        if (i == 0) frame.mark(2);
      }
      store_scores<kTokens>(p, sums, scale, is_there, page_index * 64 + key, row_begin, row_count, visible);
    }
    frame.mark(3);
  }
}

}  // namespace megartp::device
