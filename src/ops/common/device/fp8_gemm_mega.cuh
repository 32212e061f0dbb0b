// One tile of a block-scaled FP8 GEMM in the persistent kernel: 128 weight rows, the tokens of an M tile, K blocks of a
// split. Arithmetic and order are those of fp8_gemm.cuh, so the bits are.
//
// Pages, in the order of the ring: x, as many K blocks a page as fit, [K block][token][128 B]; then one page of weights
// for each of these K blocks, two pieces of 64 rows; x of the next K blocks, and so on. So a tile may take more pages
// than there are: what is needed last comes last. Consumer warp w has rows 16 w .. 16 w + 15 of the tile.
#pragma once

#include "device/mega/frame.cuh"
#include "device/wgmma.cuh"
#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/common/fp8_gemm_abi.h"

namespace megartp::device {

// What the roles need to know of a tile.
struct MegaGemmTile {
  const uint8_t* pieces;  // the first piece of the tile's first 64 rows, at the tile's first K block
  uint32_t piece_row_bytes;
  const float* w_scale;  // of the first K block
  const float* x_scale;  // [token, K blocks], of token 0 of the tile at the first K block
  uint32_t k_blocks;     // of the whole K
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t box_log2;  // of the tokens that a tile has room for: 16, 32, 64
  uint32_t n_count;
  uint32_t block_begin;
  uint32_t block_count;

  __device__ uint32_t box_m() const { return 1U << box_log2; }
  __device__ uint32_t block_bytes() const { return 128U << box_log2; }
  __device__ uint32_t page_log2() const { return 7 - box_log2; }  // of the blocks of x in a page
  __device__ uint32_t blocks_per_page() const { return 1U << page_log2(); }
  // Of the tile's pages, that of the weights of K block b; x of its group stands before the group's first one.
  __device__ uint32_t w_page(uint32_t b) const { return b + (b >> page_log2()) + 1; }
};

// As ops::block_m.
__device__ inline uint32_t mega_box_log2(uint32_t m) { return m <= 16 ? 4 : m <= 32 ? 5 : 6; }

// `n_begin`: row of this weight.
__device__ inline MegaGemmTile mega_gemm_tile(const uint8_t* weight, const float* w_scale, const float* x_scale,
                                              uint32_t k, uint32_t n_begin, uint32_t n_count, uint32_t m_begin,
                                              uint32_t m_count, uint32_t m_total, uint32_t splits, uint32_t split) {
  MegaGemmTile t;
  t.k_blocks = ceil_div(k, 128);
  const BlockRange range = split_blocks(t.k_blocks, splits, split);
  t.block_begin = range.begin;
  t.block_count = range.count;
  t.piece_row_bytes = t.k_blocks * kPieceBytes;
  t.pieces = weight + uint64_t{n_begin / kPieceRows} * t.piece_row_bytes + range.begin * kPieceBytes;
  t.w_scale = w_scale + uint64_t{n_begin / 128} * t.k_blocks + range.begin;
  t.x_scale = x_scale + uint64_t{m_begin} * t.k_blocks + range.begin;
  t.m_begin = m_begin;
  t.m_count = m_count;
  t.box_log2 = mega_box_log2(m_total);
  t.n_count = n_count;
  return t;
}

__device__ inline void mega_load_weights(MegaContext& c, const MegaGemmTile& t) {
  const uint32_t lane = lane_index();
  PageCursor page = c.pages.plus(t.w_page(0));
  const uint32_t halves = t.n_count > kPieceRows ? 2 : 1;
#pragma unroll 1
  for (uint32_t b = 0; b < t.block_count; ++b) {
    c.claim_weight_page(page);
    if (lane == 0) {
      uint64_t* full = &c.s.bar.page_full[page.page];
      mbarrier_arrive_expect(full, halves * kPieceBytes);
#pragma unroll 1
      for (uint32_t half = 0; half < halves; ++half)
        bulk_load(c.page(page) + half * kPieceBytes, t.pieces + half * t.piece_row_bytes + b * kPieceBytes, kPieceBytes,
                  full, kEvictFirst);
    }
    if (b == 0) {
      // The slot's scales are free: the slot itself was.
#pragma unroll 1
      for (uint32_t i = lane; i < t.block_count; i += 32) copy_async4(&c.s.w_scales[c.slot()][i], t.w_scale + i);
      arrive_after_copies(&c.s.bar.w_scales_full[c.slot()]);
    }
    page.advance(t.w_page(b + 1) - t.w_page(b));
  }
}

__device__ inline void mega_load_activations(MegaContext& c, const MegaGemmTile& t) {
  const uint32_t lane = lane_index();
  // x was written by ordinary stores; the copy engine reads it.
  fence_async_global();
  // Scales first: later pages of x may have to wait until the first blocks are done.
  const uint32_t buffer = c.scale_buffer();
  c.wait(&c.s.bar.scales_empty[buffer], c.scale_parity() ^ 1);
  float* scales = c.s.x_scales[buffer];
#pragma unroll 2
  for (uint32_t i = lane; i < t.block_count * t.box_m(); i += 32) {
    const uint32_t token = i / t.block_count;
    const uint32_t b = i % t.block_count;
    if (token < t.m_count) {
      copy_async4(scales + b * t.box_m() + token, t.x_scale + uint64_t{token} * t.k_blocks + b);
    } else {
      scales[b * t.box_m() + token] = 0.0F;
    }
  }
  arrive_after_copies(&c.s.bar.scales_full[buffer]);
  const TensorMap* map = c.map(0);
  PageCursor page = c.pages;
#pragma unroll 1
  for (uint32_t b = 0; b < t.block_count; page.advance(t.blocks_per_page() + 1)) {
    const uint32_t count = min(t.blocks_per_page(), t.block_count - b);
    c.wait_page_empty(page);
    if (lane == 0) {
      uint64_t* full = &c.s.bar.page_full[page.page];
      mbarrier_arrive_expect(full, count * t.block_bytes());
#pragma unroll 1
      for (uint32_t i = 0; i < count; ++i)
        tma_load_2d(c.page(page) + i * t.block_bytes(), map, (t.block_begin + b + i) * 128, t.m_begin, full);
    }
    b += count;
  }
}

// By all consumers. Gives back all pages and the scales.
template <int kTileM, bool kExact>
__device__ __forceinline__ void mega_multiply(MegaContext& c, const MegaGemmTile& t, float (&sums)[1][kTileM / 2]) {
#pragma unroll
  for (int i = 0; i < kTileM / 2; ++i) sums[0][i] = 0.0F;
  const uint32_t warp = warp_index();
  const uint32_t per_page = t.blocks_per_page();
  PageCursor x_page = c.pages;
  PageCursor w_page = c.pages.plus(t.w_page(0));
  c.wait(&c.s.bar.w_scales_full[c.slot()], c.slot_parity());
  const uint32_t buffer = c.scale_buffer();
  c.wait(&c.s.bar.scales_full[buffer], c.scale_parity());
  const float* x_scales = c.s.x_scales[buffer];
  const float* w_scales = c.s.w_scales[c.slot()];
  const bool has_rows = warp * 16 < t.n_count;
#pragma unroll 1
  for (uint32_t b = 0; b < t.block_count; ++b) {
    const uint32_t in_page = b & (per_page - 1);
    if (in_page == 0) {
      if (b != 0) {
        c.release_page(x_page);
        x_page.advance(per_page + 1);
      }
      c.wait_page_full(x_page);
    }
    c.wait_page_full(w_page);
    const uint8_t* x = c.page(x_page) + in_page * t.block_bytes();
    if constexpr (kExact) {
      // Up to 32 tokens at a time: registers hold no more.
      constexpr int kPart = kTileM > 32 ? 32 : kTileM;
      if (has_rows) {
#pragma unroll
        for (int first = 0; first < kTileM; first += kPart) {
          multiply_block<1, kPart / 8>(c.page(w_page) + warp * 16 * 128, 0, x + first * 128,
                                       x_scales + b * t.box_m() + first, w_scales[b], sums[0] + first / 2);
        }
      }
    } else {
      // Both warpgroups, whether they have rows or not: the page's second half then holds what was there before.
      float d[kTileM / 2];
      wgmma_fence();
      wgmma_block<kTileM>(d, c.page(w_page) + warp / 4 * kPieceBytes, x);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_hold(d);
#pragma unroll
      for (int j = 0; j < kTileM / 8; ++j)
        promote(sums[0] + 4 * j, d + 4 * j, block_scale(x_scales + b * t.box_m(), j, w_scales[b]));
    }
    c.release_page(w_page);
    w_page.advance(t.w_page(b + 1) - t.w_page(b));
  }
  c.release_page(x_page);
  __syncwarp();
  if (lane_index() == 0) mbarrier_arrive(&c.s.bar.scales_empty[buffer]);
}

// f(row in the tile, token in the tile, values of tokens `token` and `token` + 1).
template <int kTileM, class F>
__device__ __forceinline__ void for_each_mega_sum(const float (&sums)[1][kTileM / 2], F&& f) {
  const uint32_t row = warp_index() * 16 + lane_index() / 4;
  const uint32_t q = lane_index() % 4;
#pragma unroll
  for (int j = 0; j < kTileM / 8; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r) f(row + 8 * r, 8 * j + 2 * q, sums[0][4 * j + 2 * r], sums[0][4 * j + 2 * r + 1]);
}

// partial[split, m, n] of a split-K family. `column`: of the tile in the concatenation of the family's weights.
template <int kTileM>
__device__ __forceinline__ void mega_store_partial(MegaContext& c, const MegaGemmTile& t, float* partial,
                                                   uint32_t n_total, uint32_t m_total, uint32_t split,
                                                   uint32_t column) {
  float sums[1][kTileM / 2];
  mega_multiply<kTileM, true>(c, t, sums);
  // Of the run before: whoever read the partials then has ended before this tile's events.
  c.wait_inputs_ready();
  float* out = partial + (uint64_t{split} * m_total + t.m_begin) * n_total + column;
  for_each_mega_sum<kTileM>(sums, [&](uint32_t row, uint32_t token, float a, float b) {
    if (row >= t.n_count) return;
    if (token < t.m_count) out[uint64_t{token} * n_total + row] = a;
    if (token + 1 < t.m_count) out[uint64_t{token + 1} * n_total + row] = b;
  });
}

// A GEMM op. Op has tile(context) and store<kTileM>(context, tile), which multiplies and stores.
template <uint32_t kOp, class Op>
struct GemmMega {
  static constexpr uint32_t kOpcode = kOp;
  static constexpr bool kHasXScales = true;

  __device__ static void load_weights(MegaContext& c) { mega_load_weights(c, Op::tile(c)); }
  __device__ static void load_activations(MegaContext& c) { mega_load_activations(c, Op::tile(c)); }
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const MegaGemmTile t = Op::tile(c);
    switch (t.box_m()) {
      case 16: return Op::template store<16>(c, t);
      case 32: return Op::template store<32>(c, t);
      default: return Op::template store<64>(c, t);
    }
  }
};

// Of a split-K family, whose spec begins with an Fp8GemmSpec. Slots of the operand row: x_scale, a weight and its scale
// for each segment, the partials.
template <class Spec, uint32_t kXScale, uint32_t kWeight0, uint32_t kScale0, uint32_t kWeight1, uint32_t kScale1,
          uint32_t kPartial>
struct SplitGemm {
  __device__ static MegaGemmTile tile(const MegaContext& c) {
    const uint32_t* w = c.payload();
    const auto& gemm = c.spec<Spec>().gemm;
    const bool is_second = w[2] >= gemm.segment_rows[0];
    return mega_gemm_tile(c.operand<const uint8_t>(is_second ? kWeight1 : kWeight0),
                          c.operand<const float>(is_second ? kScale1 : kScale0), c.operand<const float>(kXScale),
                          gemm.k, w[2] - (is_second ? gemm.segment_rows[0] : 0), w[3], w[0], w[1], w[5], gemm.splits,
                          w[4]);
  }
  template <int kTileM>
  __device__ __forceinline__ static void store(MegaContext& c, const MegaGemmTile& t) {
    const uint32_t* w = c.payload();
    const auto& gemm = c.spec<Spec>().gemm;
    mega_store_partial<kTileM>(c, t, c.operand<float>(kPartial), gemm.segment_rows[0] + gemm.segment_rows[1], w[5],
                               w[4], w[2]);
  }
};

}  // namespace megartp::device
