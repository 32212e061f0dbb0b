// indexer_score: logits[m, s] = k_scale[s] * sum over heads of w[m, h] * max(0, q[m, h] . k[s]) for visible s, -inf elsewhere.
//
// Keys are wgmma's M (a page of 64), the (token, head) pairs of a block of tokens its N = 128. A thread has two keys and, for each
// token, heads / 4 pairs; it adds them in ascending order and then over the four lanes that share a key. A loader warp brings q and
// the pages.
#pragma once

#include "device/frame.cuh"
#include "device/numeric.cuh"
#include "device/wgmma.cuh"

namespace megartp::device {

inline constexpr int kScoreInlineBlocks = 16;

struct IndexerScoreParams {
  TensorMap q_map;       // E4M3 [M * heads, 128], box {128, 128}
  TensorMap key_map;     // E4M3 [pages, 64, 128] in the cache's pages of 8448 bytes, box {128, 64, 1}
  const float* weights;  // F32 [M, heads]
  const uint8_t* cache;
  const int32_t* context_lens;  // [M]
  const int32_t* block_table;   // [R, table_width]
  const uint32_t* blocks;       // token blocks: request | rows << 16, then first row; used when they are more than the inline ones
  float* logits;                // F32 [M, columns]
  uint32_t inline_blocks[kScoreInlineBlocks];  // request | rows << 8 | first row << 16
  uint32_t has_inline_blocks;
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
  uint32_t* is_there;  // stages: 0 for a page outside the cache
  static constexpr uint32_t kBytes = 1024 + kScorePairs * 128 + kScoreStages * (8192 + 256) + 256;
  __device__ explicit ScoreSmem(uint8_t* dynamic) {
    q = dynamic + ((1024 - (shared_address(dynamic) & 1023U)) & 1023U);
    keys = q + kScorePairs * 128;
    scales = reinterpret_cast<float*>(keys + kScoreStages * 8192);
    full = reinterpret_cast<uint64_t*>(scales + kScoreStages * 64);
    empty = full + kScoreStages + 1;
    is_there = reinterpret_cast<uint32_t*>(empty + kScoreStages);
  }
};

inline constexpr int kScoreThreads = 160;  // a consumer warpgroup, a loader warp

// Grid: token blocks x chunks of pages (chunks innermost). kHeads: 8, 16, 32, 64 or 128.
template <int kHeads, int kWait>
__global__ void __launch_bounds__(kScoreThreads, 3) indexer_score(const __grid_constant__ IndexerScoreParams p) {
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
  if (p.has_inline_blocks != 0) {
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
    if (first_page < visible_pages) {
      if (lane == 0) {
        tma_prefetch_map(&p.q_map);
        tma_prefetch_map(&p.key_map);
      }
      const uint32_t end = min(page_end, visible_pages) - first_page;
      int32_t pages = lane < end ? table[first_page + lane] : -1;
      frame.wait_inputs();
      if (lane == 0) {
        // q and the newest keys were written by ordinary stores; the copy engine reads them.
        asm volatile("fence.proxy.async.global;" ::: "memory");
        mbarrier_arrive_expect(&smem.full[kScoreStages], kScorePairs * 128);
        tma_load_2d(smem.q, &p.q_map, 0, row_begin * kHeads, &smem.full[kScoreStages]);
      }
      for (uint32_t i = 0; i < end; ++i) {
        if (i != 0 && i % 32 == 0) pages = i + lane < end ? table[first_page + i + lane] : -1;
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
  } else {
    const uint32_t q = lane % 4;
    const uint32_t key = warp_index() * 16 + lane / 4;
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
    frame.mark(0);
    for (uint32_t i = 0; first_page + i < page_end; ++i) {
      const uint32_t page_index = first_page + i;
      float sums[kTokens][2] = {};
      float scale[2] = {};
      bool is_there = page_index < visible_pages;
      if (is_there) {
        const uint32_t stage = i % kScoreStages;
        mbarrier_wait(&smem.full[stage], (i / kScoreStages) & 1);
        is_there = smem.is_there[stage] != 0;
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
        frame.mark(1);
        if (lane == 0) mbarrier_arrive(&smem.empty[stage]);
#pragma unroll
        for (int j = 0; j < kScorePairs / 8; ++j) {
          const int t = j * 8 / kHeads;
          sums[t][0] = fmaf(w[j][0], fmaxf(d[4 * j], 0.0F), sums[t][0]);
          sums[t][0] = fmaf(w[j][1], fmaxf(d[4 * j + 1], 0.0F), sums[t][0]);
          sums[t][1] = fmaf(w[j][0], fmaxf(d[4 * j + 2], 0.0F), sums[t][1]);
          sums[t][1] = fmaf(w[j][1], fmaxf(d[4 * j + 3], 0.0F), sums[t][1]);
        }
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int32_t visible = __shfl_sync(0xffffffffU, length, t);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float v = sums[t][r];
          v += __shfl_xor_sync(0xffffffffU, v, 1);
          v += __shfl_xor_sync(0xffffffffU, v, 2);
          const uint32_t position = page_index * 64 + key + 8 * r;
          if (t % 4 == q && t < row_count && position < p.columns)
            p.logits[uint64_t{row_begin + t} * p.columns + position] =
                is_there && static_cast<int32_t>(position) < visible ? v * scale[r] : -__int_as_float(0x7f800000);
        }
      }
    }
  }
}

}  // namespace megartp::device
