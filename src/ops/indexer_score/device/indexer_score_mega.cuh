// indexer_score in the persistent kernel: a tile is up to 128 (token, head) pairs of one request times a range of keys.
// Arithmetic and order are those of indexer_score.cuh, so the bits are.
//
// Pages: q, then one for every two pages of keys. The buffer of x scales holds the pairs' weights and the keys' scales.
// Lengths and block table are arguments, constant while anything runs: the weight loader reads them and leaves in the
// slot's weight scales what the other roles need. It also asks for the keys ahead of the events, into L2 only: the
// newest ones are still being written.
//
// map(0): q [M * heads, 128], box of 128 rows; map(1): keys [pages, 64, 128] as they lie in the cache, box of one page.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/indexer_score/device/indexer_score.cuh"
#include "ops/indexer_score/indexer_score_abi.h"

namespace megartp::device {

template <uint32_t kOp>
struct IndexerScoreMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = true;

  __device__ static void load_weights(MegaContext& c) {
    const Tile t(c);
    const uint32_t lane = lane_index();
    int32_t length = lane < t.p.row_count
                         ? load_global(c.operand<const int32_t>(ops::kIndexerScoreContextLens) + t.p.row_begin + lane)
                         : 0;
    int32_t page = -1;
    if (lane < t.key_pages())
      page = load_global(c.operand<const int32_t>(ops::kIndexerScoreBlockTable) +
                         uint64_t{t.p.request} * t.s.table_width + t.p.kv_begin / kPageKeys + lane);
    length = min(max(length, 0), static_cast<int32_t>(t.p.kv_end));
    const uint32_t longest = __reduce_max_sync(0xffffffffU, length);
    const bool is_there = t.p.kv_begin + lane * kPageKeys < longest && page >= 0 && page < t.s.num_pages;
    if (is_there)
      prefetch_l2(c.operand<const uint8_t>(ops::kIndexerScoreCache) + uint64_t(page) * kCachePageBytes,
                  kCachePageBytes);
    // The slot's weight scales are free: the slot itself was.
    Arguments& a = arguments(c);
    if (lane < kMaxTokens) a.lengths[lane] = length;
    if (lane < kScoreTilePages) a.pages[lane] = is_there ? page : -1;
    mbarrier_arrive(&c.s.bar.w_scales_full[c.slot()]);
  }

  __device__ static void load_activations(MegaContext& c) {
    const Tile t(c);
    const uint32_t lane = lane_index();
    const uint8_t* cache = c.operand<const uint8_t>(ops::kIndexerScoreCache);
    c.wait(&c.s.bar.w_scales_full[c.slot()], c.slot_parity());
    const Arguments& a = arguments(c);
    const int32_t page = lane < kScoreTilePages ? a.pages[lane] : -1;
    const uint32_t there = __ballot_sync(0xffffffffU, page >= 0);
    const uint32_t buffer = c.scale_buffer();
    c.wait(&c.s.bar.scales_empty[buffer], c.scale_parity() ^ 1);
    // q, weights and the newest keys were written by ordinary stores, and the buffer may have been by this warp; the
    // copy engine reads the ones and writes the other.
    __syncwarp();
    fence_async();
    c.wait_page_empty(c.pages);
    if (lane == 0) load_q(c, t, there != 0);
    load_scales(c, t, cache, page, there != 0, buffer);
    for (uint32_t i = 0; i < t.ring_pages(); ++i) {
      const PageCursor at = c.pages.plus(1 + i);
      c.wait_page_empty(at);
      const int32_t first = __shfl_sync(0xffffffffU, page, 2 * i);
      const int32_t second = __shfl_sync(0xffffffffU, page, 2 * i + 1);
      if (lane != 0) continue;
      uint64_t* full = &c.s.bar.page_full[at.page];
      mbarrier_arrive_expect(full, (first >= 0 ? kKeyBytes : 0) + (second >= 0 ? kKeyBytes : 0));
      if (first >= 0) tma_load_3d(c.page(at), c.map(1), 0, 0, first, full);
      if (second >= 0) tma_load_3d(c.page(at) + kKeyBytes, c.map(1), 0, 0, second, full);
    }
  }

  __device__ __forceinline__ static void consume(MegaContext& c) {
    const Tile t(c);
    const uint32_t buffer = c.scale_buffer();
    const uint32_t end = t.ring_pages() * 2;
    c.wait(&c.s.bar.w_scales_full[c.slot()], c.slot_parity());
    c.wait_inputs_ready();
    c.wait(&c.s.bar.scales_full[buffer], c.scale_parity());
    c.wait_page_full(c.pages);
    if (end != 0) score_pages(c, t, end);
    // Columns behind the last key.
#pragma unroll 1
    for (uint32_t i = end; t.p.kv_begin + i * kPageKeys < t.write_end(); ++i) ScorePlace(c, t, i).fill();
    c.release_page(c.pages);
    c.release_scales();
  }

 private:
  static constexpr uint32_t kPageKeys = 64;
  static constexpr uint32_t kKeyBytes = kPageKeys * 128;
  static constexpr uint32_t kCachePageBytes = kKeyBytes + kPageKeys * 4;
  static constexpr uint32_t kMaxTokens = kScorePairs / 8;
  static_assert(kMegaPageBytes == 2 * kKeyBytes && kMegaPageBytes == kScorePairs * 128);
  static_assert(kScorePairs + kScoreTilePages * kPageKeys <= kMegaScales);
  static_assert(1 + kScoreTilePages / 2 <= kMegaPages);

  // Read anew where it is needed: registers are dearer.
  struct Tile {
    const ops::IndexerScoreSpec& s;
    const ops::IndexerScorePayload& p;

    __device__ explicit Tile(const MegaContext& c)
        : s(c.spec<ops::IndexerScoreSpec>()), p(*reinterpret_cast<const ops::IndexerScorePayload*>(c.payload())) {}
    __device__ uint32_t write_end() const { return p.fill != 0 ? s.columns : p.kv_end; }
    __device__ uint32_t key_pages() const { return ceil_div(p.kv_end - p.kv_begin, kPageKeys); }
    __device__ uint32_t ring_pages() const { return ceil_div(key_pages(), 2); }  // with keys
  };

  // What the weight loader leaves for the others.
  struct Arguments {
    int32_t lengths[kMaxTokens];     // of the rows, at most the tile's end
    int32_t pages[kScoreTilePages];  // in the cache; -1: nothing of it is visible, or it is not in the cache
  };
  static_assert(sizeof(Arguments) <= kMegaWeightScales * 4);
  __device__ static Arguments& arguments(MegaContext& c) {
    return *reinterpret_cast<Arguments*>(c.s.w_scales[c.slot()]);
  }

  // By one lane.
  __device__ static void load_q(MegaContext& c, const Tile& t, bool any_key) {
    uint64_t* full = &c.s.bar.page_full[c.pages.page];
    mbarrier_arrive_expect(full, any_key ? kMegaPageBytes : 0);
    if (any_key) tma_load_2d(c.page(c.pages), c.map(0), 0, t.p.row_begin * t.s.heads, full);
  }
  // Lane i those of key page i, the last lane the weights. Weights of tokens beyond the tile's stay what they were:
  // nothing of such tokens is stored.
  __device__ static void load_scales(MegaContext& c, const Tile& t, const uint8_t* cache, int32_t page, bool any_key,
                                     uint32_t buffer) {
    uint64_t* full = &c.s.bar.scales_full[buffer];
    const uint32_t lane = lane_index();
    const uint8_t* from = cache + uint64_t(page) * kCachePageBytes + kKeyBytes;
    uint32_t bytes = page >= 0 ? kPageKeys * 4 : 0;
    float* to = c.s.x_scales[buffer] + kScorePairs + lane * kPageKeys;
    if (lane == 31) {
      const uint32_t heads = t.s.heads;
      from = reinterpret_cast<const uint8_t*>(c.operand<const float>(ops::kIndexerScoreWeights) +
                                              uint64_t{t.p.row_begin} * heads);
      bytes = any_key ? t.p.row_count * heads * 4 : 0;
      to = c.s.x_scales[buffer];
    }
    mbarrier_arrive_expect(full, bytes);
    if (bytes != 0) bulk_load(to, from, bytes, full);
    __syncwarp();
  }

  // Where the logits of key page `i` of the tile go. A lane's keys are `at` and the one 8 further; the four lanes of a
  // quad have the same ones.
  struct ScorePlace {
    float* out;  // of the tile's first token, key `at`
    uint32_t columns, row_count, at, end;

    __device__ ScorePlace(const MegaContext& c, const Tile& t, uint32_t i)
        : columns(t.s.columns),
          row_count(t.p.row_count),
          at(t.p.kv_begin + i * kPageKeys + threadIdx.x / 32 % 4 * 16 + lane_index() / 4),
          end(t.write_end()) {
      out = c.operand<float>(ops::kIndexerScoreLogits) + uint64_t{t.p.row_begin} * columns + at;
    }
    // Of key `at` + `ahead` and a token that sees `length` keys.
    __device__ void store(uint32_t token, uint32_t ahead, float v, int32_t length) const {
      if (static_cast<int32_t>(at + ahead) >= length) v = -__int_as_float(0x7f800000);
      if (token < row_count && at + ahead < end) out[uint64_t{token} * columns + ahead] = v;
    }
    // The first lane of a quad the first key, the second the other one.
    __device__ void fill() const {
      const uint32_t ahead = lane_index() % 4 * 8;
      if (ahead > 8) return;
#pragma unroll 1
      for (uint32_t token = 0; token < row_count; ++token) store(token, ahead, 0.0F, 0);
    }
  };

  // Key pages 0 .. end - 1, two a page of the ring.
  __device__ __forceinline__ static void score_pages(MegaContext& c, const Tile& t, uint32_t end) {
    // Tiles of eight pairs of a token: a power of two, and the compiler knows that it is the same in all lanes.
    const uint32_t tiles = __shfl_sync(0xffffffffU, t.s.heads / 8, 0);
    float d[kScorePairs / 2];
    start_keys(c, 0, end, d);
    if (tiles != 4 && tiles != 8) return score_any_heads(c, t, tiles, end, d);
    const float* buffer = c.s.x_scales[c.scale_buffer()];
    // While the sums of a page are exchanged and stored, the products of the next one run.
#pragma unroll 1
    for (uint32_t i = 0; i < end; ++i) {
      finish_keys(c, i, d);
      float sums[4][2] = {};
      if (tiles == 4)
        add_all<4>(buffer, d, sums);
      else
        add_all<2>(buffer, d, sums);
      start_keys(c, i + 1, end, d);
      const ScorePlace to(c, t, i);
      if (is_there(c, t, i))
        store_all(c, buffer, i, sums, to);
      else
        to.fill();
    }
    wgmma_wait<0>();
    wgmma_hold(d);
  }
  __device__ static bool is_there(MegaContext& c, const Tile& t, uint32_t i) {
    return i < t.key_pages() && arguments(c).pages[i] >= 0;
  }
  // Starts the products of key page `i`; those of one that is not in the cache, and of `end`, which nobody looks at:
  // with a branch around them the compiler would have each of them wait for the one before it.
  __device__ __forceinline__ static void start_keys(MegaContext& c, uint32_t i, uint32_t end,
                                                    float (&d)[kScorePairs / 2]) {
    const PageCursor page = c.pages.plus(i < end ? 1 + i / 2 : 0);
    if (i < end && i % 2 == 0) c.wait_page_full(page);
    start_page(c.page(page) + i % 2 * kKeyBytes, c.page(c.pages), d);
  }

  // Until the products of key page `i` are there. Its page of the ring goes back with the second one in it.
  __device__ __forceinline__ static void finish_keys(MegaContext& c, uint32_t i, float (&d)[kScorePairs / 2]) {
    wgmma_wait<0>();
    wgmma_hold(d);
    if (i % 2 != 0) c.release_page(c.pages.plus(1 + i / 2));
  }

  // As score_pages(), whose first page is on its way.
  __device__ __forceinline__ static void score_any_heads(MegaContext& c, const Tile& t, uint32_t tiles, uint32_t end,
                                                         float (&d)[kScorePairs / 2]) {
    const float* buffer = c.s.x_scales[c.scale_buffer()];
#pragma unroll 1
    for (uint32_t i = 0; i < end; ++i) {
      finish_keys(c, i, d);
      const ScorePlace to(c, t, i);
      if (is_there(c, t, i))
        score_any(c, tiles, buffer, i, d, to);
      else
        to.fill();
      start_keys(c, i + 1, end, d);
    }
    wgmma_wait<0>();
    wgmma_hold(d);
  }
  // Key page `i`, of any number of heads.
  __device__ __forceinline__ static void score_any(MegaContext& c, uint32_t tiles, const float* buffer, uint32_t i,
                                                   float (&d)[kScorePairs / 2], const ScorePlace& to) {
    const Arguments& a = arguments(c);
    const bool is_odd = lane_index() % 2 != 0;
    const float scale = key_scale(buffer, i, is_odd ? 8 : 0);
    const float2* weights = reinterpret_cast<const float2*>(buffer);
    uint32_t token = 0;
    float sums[2] = {};
    // Code for some tiles, which moves the products of later ones to its registers.
#pragma unroll 1
    for (uint32_t done = 0; token < to.row_count; weights += 4 * kTilesAtOnce) {
      // First of all: between the branches below the compiler would wait for each of them.
      float2 w[kTilesAtOnce];
#pragma unroll
      for (int j = 0; j < kTilesAtOnce; ++j) w[j] = weights[4 * j + lane_index() % 4];
#pragma unroll
      for (int j = 0; j < kTilesAtOnce; ++j) {
        add_pairs(w[j], d, j, sums);
        if ((++done & (tiles - 1)) != 0) continue;
        // What a key's four lanes have is added in the order of store_scores(); each lane keeps one of its two keys.
        float v = (is_odd ? sums[1] : sums[0]) + __shfl_xor_sync(0xffffffffU, is_odd ? sums[0] : sums[1], 1);
        v = (v + __shfl_xor_sync(0xffffffffU, v, 2)) * scale;
        if (lane_index() % 4 < 2) to.store(token, is_odd ? 8 : 0, v, a.lengths[token % kMaxTokens]);
        ++token;
        sums[0] = sums[1] = 0.0F;
      }
#pragma unroll
      for (int k = 0; k < kScorePairs / 2 - 4 * kTilesAtOnce; ++k) d[k] = d[k + 4 * kTilesAtOnce];
    }
  }

  // Of key page i: that of the lane's first key, or the one `ahead` keys behind it.
  __device__ static float key_scale(const float* buffer, uint32_t i, uint32_t ahead) {
    return buffer[kScorePairs + i * kPageKeys + threadIdx.x / 32 % 4 * 16 + lane_index() / 4 + ahead];
  }
  // Adds up what this lane has of kTokens tokens, all of the tile's: without the branches and moves of the code for any
  // number, which take as long as everything else.
  template <int kTokens>
  __device__ __forceinline__ static void add_all(const float* buffer, const float (&d)[kScorePairs / 2],
                                                 float (&sums)[4][2]) {
    static_assert(kTokens <= 4);
    constexpr int kTiles = kScorePairs / 8 / kTokens;  // of a token
    const float2* weights = reinterpret_cast<const float2*>(buffer);
#pragma unroll
    for (int j = 0; j < kTokens * kTiles; ++j) add_pairs(weights[4 * j + lane_index() % 4], d, j, sums[j / kTiles]);
  }
  // As in indexer_score.cuh, each lane stores one of four tokens, for its two keys.
  __device__ __forceinline__ static void store_all(MegaContext& c, const float* buffer, uint32_t i,
                                                   const float (&sums)[4][2], const ScorePlace& to) {
    const uint32_t token = lane_index() % 4;
    const int32_t length = arguments(c).lengths[token];
    const bool is_odd = (token & 1) != 0;
    const bool is_high = (token & 2) != 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float low =
          (is_odd ? sums[1][r] : sums[0][r]) + __shfl_xor_sync(0xffffffffU, is_odd ? sums[0][r] : sums[1][r], 1);
      const float high =
          (is_odd ? sums[3][r] : sums[2][r]) + __shfl_xor_sync(0xffffffffU, is_odd ? sums[2][r] : sums[3][r], 1);
      const float sum = (is_high ? high : low) + __shfl_xor_sync(0xffffffffU, is_high ? low : high, 2);
      to.store(token, 8 * r, sum * key_scale(buffer, i, 8 * r), length);
    }
  }

  static constexpr int kTilesAtOnce = 4;
};

}  // namespace megartp::device
