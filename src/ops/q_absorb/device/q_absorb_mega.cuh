// q_absorb in the persistent kernel: a tile is one head, 128 columns and up to 64 rows. Arithmetic and order are those
// of q_absorb.cuh, so the bits are.
//
// Two pages: the weight's rows d, 128 a page, each 128 columns in 128-byte swizzle; when they are in registers, the
// sums of one half of the columns a page. Consumer warp w has quarter w % 4 of d and half w / 4 of the columns.
//
// map(0): kv_b, box of 64 rows of 128 bytes.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/q_absorb/device/absorb.cuh"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::device {

template <uint32_t kOp>
struct QAbsorbMega {
  static constexpr uint32_t kOpcode = kOp;
  static constexpr bool kHasXScales = false;

  __device__ static void load_weights(MegaContext& c) {
    const uint32_t lane = lane_index();
    const Tile t(c);
    // On their way while pages become free. The slot's scales are free: the slot itself was.
    const uint32_t first_block = t.first_row() / 128;
    const bool has_scale = lane <= (t.first_row() + t.s.nope - 1) / 128 - first_block;
    float scale = 0.0F;
    if (has_scale)
      scale = load_global(c.operand<const float>(ops::kQAbsorbKvBScale) +
                          (first_block + lane) * ceil_div(t.s.kv_lora, 128) + t.p.n_begin / 128);
    const uint32_t boxes = ceil_div(t.s.nope, kAbsorbBoxRows);
#pragma unroll 1
    for (uint32_t i = 0; i < kPages; ++i) {
      const PageCursor page = c.pages.plus(i);
      c.claim_weight_page(page);
      if (lane == 0) {
        uint64_t* full = &c.s.bar.page_full[page.page];
        const uint32_t first = i * kBoxesPerPage;
        const uint32_t end = min(boxes, first + kBoxesPerPage);
        mbarrier_arrive_expect(full, first < end ? (end - first) * kBoxBytes : 0);
#pragma unroll 1
        for (uint32_t box = first; box < end; ++box)
          tma_load_2d(c.page(page) + (box - first) * kBoxBytes, c.map(0), t.p.n_begin,
                      t.first_row() + box * kAbsorbBoxRows, full, kEvictFirst);
      }
    }
    if (has_scale) c.s.w_scales[c.slot()][lane] = scale;
  }
  __device__ static void load_activations(MegaContext&) {}

  __device__ __forceinline__ static void consume(MegaContext& c) {
    const Tile t(c);
    AbsorbWeights<kAbsorbMaxSteps, kAbsorbTiles> w;
    take_weights(c, t, w);
    c.sync_consumers();  // the pages are free for sums
    float* half_sums = reinterpret_cast<float*>(c.page(c.pages.plus(threadIdx.x / 128)));
    Tokens tokens(c, t, 0);
    c.wait_inputs_ready();
    for (uint32_t m = 0; m < t.p.row_count; m += 16) {
      if (m != 0) {
        tokens = Tokens(c, t, m);
        c.sync_consumers();  // everybody has read the sums of the rows before
      }
      uint2 low[kAbsorbMaxSteps];
      uint2 high[kAbsorbMaxSteps];
      tokens.load(low, high);
      __syncwarp();  // else nvcc 13.0 puts most of the loads behind the first products
      float sums[kAbsorbTiles][4] = {};
      w.multiply(t.steps(), 0, low, high, sums);
      absorb_store_sums<AbsorbDenseSums>(half_sums, threadIdx.x / 32 % 4, sums);
      fence_async_shared();  // the next to write the pages is the copy engine
      c.sync_consumers();
      store_tokens(c, t, m, half_sums);
    }
    for (uint32_t i = 0; i < kPages; ++i) c.release_page(c.pages.plus(i));
  }

 private:
  static constexpr uint32_t kPages = kAbsorbPages;
  static constexpr uint32_t kBoxBytes = kAbsorbBoxRows * 128;
  static constexpr uint32_t kBoxesPerPage = kMegaPageBytes / kBoxBytes;
  static constexpr uint32_t kRowsPerPage = kMegaPageBytes / 128;
  static_assert(kAbsorbMaxSteps * kAbsorbStepDepth <= kPages * kRowsPerPage, "all d of a tile fit its pages");
  static_assert(AbsorbDenseSums::kFloats * 4 <= kMegaPageBytes, "a half's sums fit a page");

  // Read anew where it is needed: registers are dearer.
  struct Tile {
    const ops::QAbsorbSpec& s;
    const ops::QAbsorbPayload& p;

    __device__ explicit Tile(const MegaContext& c)
        : s(c.spec<ops::QAbsorbSpec>()), p(*reinterpret_cast<const ops::QAbsorbPayload*>(c.payload())) {}
    __device__ uint32_t first_row() const { return p.head * (s.nope + s.v); }  // of kv_b
    __device__ uint32_t steps() const { return ceil_div(s.nope, kAbsorbStepDepth); }
    // This lane's first d: its warp's quarter.
    __device__ uint32_t first_d() const { return threadIdx.x / 32 % 4 * steps() * 16 + lane_index() % 4 * 4; }
    // Of [M, heads]; `m` counts from the tile's first row.
    __device__ uint64_t row(uint32_t m) const { return uint64_t{p.row_begin + m} * s.heads + p.head; }
  };

  // Where this lane's d of tokens m + g and m + g + 8 stand. Without branches around the loads: what is not there is
  // read from the tile's first row.
  struct Tokens {
    const uint2* low_row;
    const uint2* high_row;
    uint32_t at[kAbsorbMaxSteps];
    bool is_there[kAbsorbMaxSteps];
    bool has_low, has_high;

    __device__ Tokens(const MegaContext& c, const Tile& t, uint32_t m) {
      const uint2* q_nope = c.operand<const uint2>(ops::kQAbsorbQNope);
      const uint32_t token = m + lane_index() / 4;
      has_low = token < t.p.row_count;
      has_high = token + 8 < t.p.row_count;
      low_row = q_nope + t.row(has_low ? token : 0) * t.s.nope / 4;
      high_row = q_nope + t.row(has_high ? token + 8 : 0) * t.s.nope / 4;
#pragma unroll
      for (int step = 0; step < kAbsorbMaxSteps; ++step) {
        const uint32_t d = t.first_d() + step * 16;
        is_there[step] = step < t.steps() && d < t.s.nope;
        at[step] = is_there[step] ? d / 4 : 0;
      }
    }
    __device__ void load(uint2 (&low)[kAbsorbMaxSteps], uint2 (&high)[kAbsorbMaxSteps]) const {
#pragma unroll
      for (int step = 0; step < kAbsorbMaxSteps; ++step) {
        low[step] = load_global(low_row + at[step]);
        high[step] = load_global(high_row + at[step]);
        if (!is_there[step] || !has_low) low[step] = uint2{};
        if (!is_there[step] || !has_high) high[step] = uint2{};
      }
    }
  };
  // This thread's eight of the half's columns.
  __device__ __forceinline__ static void store_tokens(const MegaContext& c, const Tile& t, uint32_t m,
                                                      const float* half_sums) {
    const uint32_t token = threadIdx.x % 128 / 8;
    const uint32_t column = threadIdx.x % 8;
    const uint4 v = absorb_add_quarters<AbsorbDenseSums>(half_sums, token, column);
    const uint32_t n = t.p.n_begin + column * 16 + threadIdx.x / 128 * kAbsorbTiles;
    if (m + token < t.p.row_count && n < t.s.kv_lora)
      *reinterpret_cast<uint4*>(c.operand<uint16_t>(ops::kQAbsorbQOut) + t.row(m + token) * (t.s.kv_lora + t.s.rope) +
                                n) = v;
  }

  // From the pages into fragments; columns beyond kv_lora are zero there.
  __device__ __forceinline__ static void take_weights(MegaContext& c, const Tile& t,
                                                      AbsorbWeights<kAbsorbMaxSteps, kAbsorbTiles>& w) {
    c.wait(&c.s.bar.w_scales_full[c.slot()], c.slot_parity());
    for (uint32_t i = 0; i < kPages; ++i) c.wait_page_full(c.pages.plus(i));
    const uint8_t* pages[kPages] = {c.page(c.pages), c.page(c.pages.plus(1))};
    const float* scales = c.s.w_scales[c.slot()];
    const uint32_t g = lane_index() / 4;
    const uint32_t half = threadIdx.x / 128;
    const uint32_t first_d = t.first_d();
    const uint32_t in_block = t.first_row() % 128;
    uint32_t column[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) column[i] = i * 128 + (g ^ ((first_d + i) % 8)) * 16 + half * kAbsorbTiles;
#pragma unroll
    for (int step = 0; step < kAbsorbMaxSteps; ++step) {
      uint2 bytes[4] = {};
      float scale[4] = {};
      const uint32_t d = first_d + step * 16;  // of four, which are there or not
      if (step < t.steps() && d < t.s.nope) {
        const uint8_t* rows = (d < kRowsPerPage ? pages[0] : pages[1]) + d % kRowsPerPage * 128;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          bytes[i] = *reinterpret_cast<const uint2*>(rows + column[i]);
          scale[i] = scales[(in_block + d + i) / 128];
        }
      }
      w.convert(step, bytes, scale);
    }
  }
};

}  // namespace megartp::device
