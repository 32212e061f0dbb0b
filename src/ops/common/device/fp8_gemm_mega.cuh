// One tile of a block-scaled FP8 GEMM in the persistent kernel: 64 weight rows, the tokens of an M tile, K blocks of a
// split. Arithmetic and order are those of fp8_gemm.cuh, so the bits are.
//
// Pages, in the order of the ring: a page of x has as many K blocks as fit, [K block][token][128 B]; before it stand
// the weights of these K blocks, pieces of two K blocks a page, which come before x does; then those of the next K
// blocks, and so on. So a tile may take more pages than there are: what is needed last comes last. Consumer warp w has
// rows 16 w .. 16 w + 15 of the tile.
//
// With up to 16 tokens the weights go to registers as soon as they are there, and leave their pages to the weights that
// come next: a worker that waits for x has 32 KiB more of weights on its SM.
#pragma once

#include "device/mega/frame.cuh"
#include "device/wgmma.cuh"
#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/row_finalize.cuh"
#include "ops/common/fp8_gemm_abi.h"

namespace megartp::device {

inline constexpr uint32_t kBlocksPerWeightPage = kMegaPageBytes / kPieceBytes;

// What the roles need to know of a tile.
struct MegaGemmTile {
  const uint8_t* pieces;  // of the tile's first K block; those of further ones follow
  const float* w_scale;   // of the first K block
  const float* x_scale;   // [token, K blocks], of token 0 of the tile at the first K block
  uint32_t k_blocks;      // of the whole K
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
  // Of the tile's pages, that of the weights of K block b. x of a group stands behind the group's last one.
  __device__ uint32_t w_page(uint32_t b) const { return b / kBlocksPerWeightPage + (b >> page_log2()); }
};

// As ops::block_m.
__device__ inline uint32_t mega_box_log2(uint32_t m) { return m <= 16 ? 4 : m <= 32 ? 5 : 6; }

// a / b, of numbers below 2^20 that are not known before: without the 20 instructions of a division of integers. The
// half keeps the quotient further from an integer than what the division of floats may be wrong by (two ulp).
__device__ inline uint32_t small_quotient(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(__fdividef(static_cast<float>(a) + 0.5F, static_cast<float>(b)));
}
// As split_blocks().
__device__ inline BlockRange mega_split_blocks(uint32_t blocks, uint32_t splits, uint32_t i) {
  const uint32_t base = small_quotient(blocks, splits);
  const uint32_t extra = blocks - base * splits;
  return {i * base + min(i, extra), base + (i < extra ? 1U : 0U)};
}

// `n_begin`: row of this weight.
__device__ inline MegaGemmTile mega_gemm_tile(const uint8_t* weight, const float* w_scale, const float* x_scale,
                                              uint32_t k, uint32_t n_begin, uint32_t n_count, uint32_t m_begin,
                                              uint32_t m_count, uint32_t m_total, uint32_t splits, uint32_t split) {
  MegaGemmTile t;
  t.k_blocks = ceil_div(k, 128);
  const BlockRange range = mega_split_blocks(t.k_blocks, splits, split);
  t.block_begin = range.begin;
  t.block_count = range.count;
  t.pieces = weight + (uint64_t{n_begin / kPieceRows} * t.k_blocks + range.begin) * kPieceBytes;
  t.w_scale = w_scale + uint64_t{n_begin / 128} * t.k_blocks + range.begin;
  t.x_scale = x_scale + uint64_t{m_begin} * t.k_blocks + range.begin;
  t.m_begin = m_begin;
  t.m_count = m_count;
  t.box_log2 = mega_box_log2(m_total);
  t.n_count = n_count;
  return t;
}

// While there is no room for `page`, the tile's weights from K block `ahead` on go to the L2, a page each microsecond:
// at that pace others hardly notice. To where it came. Up to 16 tokens only: with more, arithmetic takes longer than
// weights, and this costs more than it brings.
constexpr uint64_t kPrefetchPaceNs = 1000;
__device__ inline uint32_t prefetch_while_full(MegaContext& c, const MegaGemmTile& t, const PageCursor& page,
                                               uint32_t ahead) {
  uint64_t last = global_timer();
  while (ahead < t.block_count && !c.is_page_empty(page)) {
    const uint64_t now = global_timer();
    if (now - last < kPrefetchPaceNs) continue;
    last = now;
    if (lane_index() == 0)
      prefetch_l2(t.pieces + ahead * kPieceBytes, min(kBlocksPerWeightPage, t.block_count - ahead) * kPieceBytes);
    ahead += kBlocksPerWeightPage;
  }
  __syncwarp();
  return ahead;
}

__device__ inline void mega_load_weights(MegaContext& c, const MegaGemmTile& t) {
  const uint32_t lane = lane_index();
  PageCursor page = c.pages.plus(t.w_page(0));
  uint32_t ahead = 0;
#pragma unroll 1
  for (uint32_t b = 0; b < t.block_count; b += kBlocksPerWeightPage) {
    if (t.box_log2 == 4) ahead = prefetch_while_full(c, t, page, max(ahead, b));
    c.claim_weight_page(page);
    if (lane == 0) {
      uint64_t* full = &c.s.bar.page_full[page.page];
      const uint32_t bytes = min(kBlocksPerWeightPage, t.block_count - b) * kPieceBytes;
      mbarrier_arrive_expect(full, bytes);
      bulk_load(c.page(page), t.pieces + b * kPieceBytes, bytes, full, kEvictFirst);
    }
    if (b == 0) {
      // The slot's scales are free: the slot itself was.
#pragma unroll 1
      for (uint32_t i = lane; i < t.block_count; i += 32) copy_async4(&c.s.w_scales[c.slot()][i], t.w_scale + i);
      arrive_after_copies(&c.s.bar.w_scales_full[c.slot()]);
    }
    page.advance(t.w_page(b + kBlocksPerWeightPage) - t.w_page(b));
  }
}

__device__ inline void mega_load_activations(MegaContext& c, const MegaGemmTile& t) {
  const uint32_t lane = lane_index();
  // x was written by ordinary stores; the copy engine reads it.
  fence_async_global();
  // Scales first: pages of x may have to wait until others are done.
  const uint32_t buffer = c.scale_buffer();
  c.wait(&c.s.bar.scales_empty[buffer], c.scale_parity() ^ 1);
  float* scales = c.s.x_scales[buffer];
#pragma unroll 1
  for (uint32_t i = lane; i < t.block_count * t.box_m(); i += 32) {
    const uint32_t token = i & (t.box_m() - 1);
    if (token < t.m_count) {
      copy_async4(scales + i, t.x_scale + uint64_t{token} * t.k_blocks + (i >> t.box_log2));
    } else {
      scales[i] = 0.0F;
    }
  }
  arrive_after_copies(&c.s.bar.scales_full[buffer]);
  const TensorMap* map = c.map(0);
  PageCursor page = c.pages;
#pragma unroll 1
  for (uint32_t b = 0; b < t.block_count; page.advance(1)) {
    const uint32_t count = min(t.blocks_per_page(), t.block_count - b);
    page.advance(ceil_div(count, kBlocksPerWeightPage));
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

// A warp's weights of up to kBlocks K blocks, in registers before x is there: the first ones as FP16, for which there
// is time then, the others as they are, because registers do not hold all.
template <int kTileM, int kBlocks>
struct TakenWeights {
  static constexpr int kHalves = 2;
  BlockWeights<true> halves[kHalves];
  BlockWeights<false> raw[kBlocks - kHalves];

  // From the pages `page` on, which go back to the loader.
  __device__ __forceinline__ void take(MegaContext& c, PageCursor& page, uint32_t count) {
    const uint32_t warp = warp_index();
#pragma unroll
    for (int b = 0; b < kBlocks; b += kBlocksPerWeightPage) {
      const bool is_there = b < count;
      if (is_there) c.wait_page_full(page);
      // Without a branch: what is not there is read all the same, and not used.
#pragma unroll
      for (int i = 0; i < kBlocksPerWeightPage; ++i) {
        const uint8_t* from = c.page(page) + i * kPieceBytes + warp * 16 * 128;
        if (b + i < kHalves)
          load_block(halves[b + i], from);
        else
          load_block(raw[b + i - kHalves], from);
      }
      if (!is_there) continue;
      c.release_read_page(page);
      page.advance(1);
    }
  }
  // Adds the products with the `count` first blocks of x.
  __device__ __forceinline__ void multiply(const uint8_t* x, const float* x_scales, const float* w_scales,
                                           uint32_t count, float* sums) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (b >= count) break;
      float d[1][kTileM / 8][4] = {};
      if (b < kHalves)
        multiply_blocks(halves + b, x + b * kTileM * 128, 0, d);
      else
        multiply_blocks(raw + b - kHalves, x + b * kTileM * 128, 0, d);
#pragma unroll
      for (int j = 0; j < kTileM / 8; ++j)
        promote(sums + 4 * j, d[0][j], block_scale(x_scales + b * kTileM, j, w_scales[b]));
    }
  }
};

// The two K blocks of a page of weights, of which `count` are there, by exact products. `x`: the first one's.
template <int kTileM>
__device__ __forceinline__ void multiply_page_exactly(const uint8_t* w, const uint8_t* x, const float* x_scales,
                                                      const float* w_scales, uint32_t count, float* sums) {
  constexpr int kPart = kTileM > 32 ? 32 : kTileM;  // tokens at a time: registers hold no more
#pragma unroll 1
  for (uint32_t b = 0; b < min(count, kBlocksPerWeightPage); ++b) {
#pragma unroll
    for (int part = 0; part < kTileM; part += kPart)
      multiply_block<1, kPart / 8>(w + b * kPieceBytes + warp_index() * 16 * 128, 0, x + (b * kTileM + part) * 128,
                                   x_scales + b * kTileM + part, w_scales[b], sums + part / 2);
  }
}
// The same by FP8 products, both at once; those of a block that is not there are not looked at. Calls read() when the
// pages have been read.
template <int kTileM, class F>
__device__ __forceinline__ void multiply_page_fp8(const uint8_t* w, const uint8_t* x, const float* x_scales,
                                                  const float* w_scales, uint32_t count, float* sums, F&& read) {
  static_assert(kBlocksPerWeightPage == 2);
  float d[2][kTileM / 2];
  wgmma_fence();
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    wgmma_block<kTileM>(d[b], w + b * kPieceBytes, x + b * kTileM * 128);
    wgmma_commit();
  }
  const auto promote_all = [&](int b) {
#pragma unroll
    for (int j = 0; j < kTileM / 8; ++j)
      promote(sums + 4 * j, d[b] + 4 * j, block_scale(x_scales + b * kTileM, j, w_scales[b]));
  };
  wgmma_wait<1>();
  wgmma_hold(d[0]);
  promote_all(0);
  wgmma_wait<0>();
  wgmma_hold(d[1]);
  read();
  if (count > 1) promote_all(1);
}

// By all consumers. Gives back all pages and the scales.
template <int kTileM, bool kExact>
__device__ __forceinline__ void mega_multiply(MegaContext& c, const MegaGemmTile& t, float (&sums)[1][kTileM / 2]) {
  constexpr uint32_t kGroup = kMegaPageBytes / 128 / kTileM;  // K blocks of x in a page
#pragma unroll
  for (int i = 0; i < kTileM / 2; ++i) sums[0][i] = 0.0F;
  const uint32_t buffer = c.scale_buffer();
  const float* x_scales = c.s.x_scales[buffer];
  const float* w_scales = c.s.w_scales[c.slot()];
  const bool has_rows = warp_index() * 16 < t.n_count;
  PageCursor page = c.pages;
#pragma unroll 1
  for (uint32_t first = 0; first < t.block_count; first += kGroup, x_scales += kGroup * kTileM, w_scales += kGroup) {
    const uint32_t count = min(kGroup, t.block_count - first);
    const PageCursor x_page = page.plus(ceil_div(count, kBlocksPerWeightPage));
    const uint8_t* x = c.page(x_page);
    const auto wait_x = [&]() {
      if (first == 0) {
        c.wait(&c.s.bar.w_scales_full[c.slot()], c.slot_parity());
        c.wait(&c.s.bar.scales_full[buffer], c.scale_parity());
      }
      c.wait_page_full(x_page);
    };
    if constexpr (kExact && kTileM == 16) {
      constexpr int kBlocks = 4;
#pragma unroll 1
      for (uint32_t b = 0; b < count; b += kBlocks) {
        TakenWeights<kTileM, kBlocks> w;
        w.take(c, page, count - b);
        if (b == 0) wait_x();
        if (has_rows) w.multiply(x + b * kTileM * 128, x_scales + b * kTileM, w_scales + b, count - b, sums[0]);
      }
      c.release_read_page(x_page);
    } else {
      wait_x();
#pragma unroll 1
      for (uint32_t b = 0; b < count; b += kBlocksPerWeightPage, page.advance(1)) {
        c.wait_page_full(page);
        const uint8_t* xs = x + b * kTileM * 128;
        if constexpr (kExact) {
          if (has_rows)
            multiply_page_exactly<kTileM>(c.page(page), xs, x_scales + b * kTileM, w_scales + b, count - b, sums[0]);
          c.release_read_page(page);
        } else {
          multiply_page_fp8<kTileM>(c.page(page), xs, x_scales + b * kTileM, w_scales + b, count - b, sums[0],
                                    [&]() { c.release_page(page); });
        }
      }
      c.release_read_page(x_page);
    }
    page = x_page.plus(1);
  }
  c.release_scales();
}

// f(row in the tile, token in the tile, values of tokens `token` and `token` + 1), for tokens up to t.m_count and some
// beyond. Uses up the sums: code for eight tokens, to whose registers those of later ones move, because more code takes
// longer to be fetched than to run.
template <int kTileM, class F>
__device__ __forceinline__ void for_each_mega_sum(const MegaGemmTile& t, float (&sums)[1][kTileM / 2], F&& f) {
  const uint32_t row = warp_index() * 16 + lane_index() / 4;
  const uint32_t q = lane_index() % 4;
#pragma unroll 1
  for (uint32_t first = 0; first < t.m_count; first += 8) {
#pragma unroll
    for (int r = 0; r < 2; ++r) f(row + 8 * r, first + 2 * q, sums[0][2 * r], sums[0][2 * r + 1]);
#pragma unroll
    for (int k = 0; k < kTileM / 2 - 4; ++k) sums[0][k] = sums[0][k + 4];
  }
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
  for_each_mega_sum<kTileM>(t, sums, [&](uint32_t row, uint32_t token, float a, float b) {
    if (row >= t.n_count) return;
    if (token < t.m_count) out[uint64_t{token} * n_total + row] = a;
    if (token + 1 < t.m_count) out[uint64_t{token + 1} * n_total + row] = b;
  });
}

// A GEMM. Tile has tile(context) and store<kTileM>(context, tile), which multiplies and stores.
template <class Tile, uint32_t... kOps>
struct GemmMega : MegaOpcodes<kOps...> {
  static constexpr bool kHasXScales = true;

  __device__ static void load_weights(MegaContext& c) { mega_load_weights(c, Tile::tile(c)); }
  __device__ static void load_activations(MegaContext& c) { mega_load_activations(c, Tile::tile(c)); }
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const MegaGemmTile t = Tile::tile(c);
    switch (t.box_m()) {
      case 16: return Tile::template store<16>(c, t);
      case 32: return Tile::template store<32>(c, t);
      default: return Tile::template store<64>(c, t);
    }
  }
};

// Of split-K families, whose specs begin with an Fp8GemmSpec: one code for all of them, because code that has run on an
// SM is not fetched again.
struct SplitGemmTile {
  __device__ static MegaGemmTile tile(const MegaContext& c) {
    const uint32_t* w = c.payload();
    const auto& gemm = c.spec<ops::Fp8GemmSpec>();
    const uint32_t first = w[2] >= gemm.segment_rows[0] ? gemm.segment_rows[0] : 0;
    return mega_gemm_tile(c.operand<const uint8_t>(c.shared_slot(ops::kSplitGemmWeight)),
                          c.operand<const float>(c.shared_slot(ops::kSplitGemmWeightScale)),
                          c.operand<const float>(c.shared_slot(ops::kSplitGemmXScale)), gemm.k, w[2] - first, w[3],
                          w[0], w[1], w[5], gemm.splits, w[4]);
  }
  template <int kTileM>
  __device__ __forceinline__ static void store(MegaContext& c, const MegaGemmTile& t) {
    const uint32_t* w = c.payload();
    mega_store_partial<kTileM>(c, t, c.operand<float>(c.shared_slot(ops::kSplitGemmPartial)),
                               total_n(c.spec<ops::Fp8GemmSpec>()), w[5], w[4], w[2]);
  }
};
template <uint32_t... kOps>
using SplitGemmMega = GemmMega<SplitGemmTile, kOps...>;

}  // namespace megartp::device
