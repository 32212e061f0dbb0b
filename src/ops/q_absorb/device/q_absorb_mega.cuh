// q_absorb in the persistent kernel: a tile is one head, 128 columns and up to 64 rows. Arithmetic and order are those
// of q_absorb.cuh, so the bits are.
//
// Four pages: two of the weight's rows d, 128 a page, each 128 columns in 128-byte swizzle; two for the quarters' sums,
// of one half of the columns each. Consumer warp w has quarter w of d, whose weights stay in registers for all rows.
//
// map(0): kv_b, box of 64 rows of 128 bytes.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/q_absorb/device/absorb.cuh"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::device {

template <uint32_t kOp>
struct QAbsorbMega : MegaOpcodes<kOp> {
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
    for (uint32_t i = 0; i < kWeightPages; ++i) {
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
  // Nothing comes: the pages for sums are empty.
  __device__ static void load_activations(MegaContext& c) {
    for (uint32_t half = 0; half < 2; ++half) {
      const PageCursor page = c.pages.plus(kWeightPages + half);
      c.wait_page_empty(page);
      if (lane_index() == 0) mbarrier_arrive(&c.s.bar.page_full[page.page]);
    }
  }

  __device__ __forceinline__ static void consume(MegaContext& c) {
    const Tile t(c);
    if (t.p.row_count <= 16)
      absorb_few(c, t);
    else
      absorb_many(c, t);
    fence_async_shared();  // the next to write the pages is the copy engine
    for (uint32_t i = kWeightPages; i < kPages; ++i) c.release_page(c.pages.plus(i));
  }

 private:
  static constexpr uint32_t kPages = kAbsorbPages;
  static constexpr uint32_t kWeightPages = kAbsorbWeightPages;
  static constexpr uint32_t kBoxBytes = kAbsorbBoxRows * 128;
  static constexpr uint32_t kBoxesPerPage = kMegaPageBytes / kBoxBytes;
  static constexpr uint32_t kRowsPerPage = kMegaPageBytes / 128;
  static_assert(kAbsorbMaxSteps * kAbsorbStepDepth <= kWeightPages * kRowsPerPage, "all d of a tile fit its pages");
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
    __device__ uint32_t first_d() const { return threadIdx.x / 32 * steps() * 16 + lane_index() % 4 * 4; }
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
  __device__ static float* half_sums(const MegaContext& c, uint32_t half) {
    return reinterpret_cast<float*>(c.page(c.pages.plus(kWeightPages + half)));
  }
  // This thread's eight columns of each half, which are neighbours.
  __device__ __forceinline__ static void store_tokens(const MegaContext& c, const Tile& t, uint32_t m) {
    const uint32_t thread = opaque(threadIdx.x);  // 32 addresses of sums follow from it, for all ops
    const uint32_t token = thread / 8;
    const uint32_t column = thread % 8;
    uint16_t* out = c.operand<uint16_t>(ops::kQAbsorbQOut) + t.row(m + token) * (t.s.kv_lora + t.s.rope);
#pragma unroll 1
    for (uint32_t half = 0; half < 2; ++half) {
      const uint4 v = absorb_add_quarters<AbsorbDenseSums>(half_sums(c, half), token, column);
      const uint32_t n = t.p.n_begin + column * 16 + half * kAbsorbTiles;
      if (m + token < t.p.row_count && n < t.s.kv_lora) *reinterpret_cast<uint4*>(out + n) = v;
    }
  }

  // Sixteen rows: each weight is used once, so the code is that of one step, in a loop.
  __device__ __forceinline__ static void absorb_few(MegaContext& c, const Tile& t) {
    uint2 low[kAbsorbMaxSteps];
    uint2 high[kAbsorbMaxSteps];
    const Tokens tokens(c, t, 0);
    c.wait_inputs_ready();
    tokens.load(low, high);
    wait_weights(c);
    float sums[2][kAbsorbTiles][4] = {};
#pragma unroll 1
    for (uint32_t step = 0; step < t.steps(); ++step) {
      AbsorbWeights<1> w;
      take_step(c, t, step, 0, w);
      const uint2 first_low[1] = {low[0]};
      const uint2 first_high[1] = {high[0]};
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) w.multiply(1, half * kAbsorbTiles, first_low, first_high, sums[half]);
#pragma unroll
      for (int k = 0; k + 1 < kAbsorbMaxSteps; ++k) low[k] = low[k + 1], high[k] = high[k + 1];
    }
    release_weights(c);
    const uint32_t thread = opaque(threadIdx.x);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      c.wait_page_full(c.pages.plus(kWeightPages + half));
      absorb_store_sums<AbsorbDenseSums>(half_sums(c, half), thread, sums[half]);
    }
    c.sync_consumers();
    store_tokens(c, t, 0);
  }
  // More rows: the weights stay in registers for all of them.
  __device__ __forceinline__ static void absorb_many(MegaContext& c, const Tile& t) {
    wait_weights(c);
    AbsorbWeights<kAbsorbMaxSteps> w;
#pragma unroll
    for (int step = 0; step < kAbsorbMaxSteps; ++step) {
      take_step(c, t, step, step, w);
      __syncwarp();  // one step after the other: bytes and values of all at once need more registers than there are
    }
#pragma unroll 1
    for (uint32_t m = 0; m < t.p.row_count; m += 16) {
      uint2 low[kAbsorbMaxSteps];
      uint2 high[kAbsorbMaxSteps];
      const Tokens tokens(c, t, m);
      c.wait_inputs_ready();
      tokens.load(low, high);
      __syncwarp();  // else nvcc 13.0 puts most of the loads behind the first products
      // The rows before these are added up while they come.
      if (m != 0) {
        c.sync_consumers();
        store_tokens(c, t, m - 16);
        c.sync_consumers();  // everybody has read the sums
      }
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        float sums[kAbsorbTiles][4] = {};
        w.multiply(t.steps(), half * kAbsorbTiles, low, high, sums);
        c.wait_page_full(c.pages.plus(kWeightPages + half));
        absorb_store_sums<AbsorbDenseSums>(half_sums(c, half), opaque(threadIdx.x), sums);
      }
    }
    c.sync_consumers();
    store_tokens(c, t, (t.p.row_count - 1) / 16 * 16);
    release_weights(c);
  }

  __device__ __forceinline__ static void wait_weights(MegaContext& c) {
    c.wait(&c.s.bar.w_scales_full[c.slot()], c.slot_parity());
    for (uint32_t i = 0; i < kWeightPages; ++i) c.wait_page_full(c.pages.plus(i));
  }
  __device__ __forceinline__ static void release_weights(MegaContext& c) {
    for (uint32_t i = 0; i < kWeightPages; ++i) c.release_read_page(c.pages.plus(i));
  }
  // The weights of a step from the pages into fragments, as w's step `to`; columns beyond kv_lora are zero there.
  template <int kSteps>
  __device__ __forceinline__ static void take_step(MegaContext& c, const Tile& t, uint32_t step, int to,
                                                   AbsorbWeights<kSteps>& w) {
    const float* scales = c.s.w_scales[c.slot()];
    const uint32_t g = lane_index() / 4;
    const uint32_t first_d = t.first_d();
    const uint32_t in_block = t.first_row() % 128;
    uint4 bytes[4] = {};
    float scale[4] = {};
    const uint32_t d = first_d + step * 16;  // of four, which are there or not
    if (step < t.steps() && d < t.s.nope) {
      const uint8_t* rows = c.page(c.pages.plus(d / kRowsPerPage)) + d % kRowsPerPage * 128;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        bytes[i] = *reinterpret_cast<const uint4*>(rows + i * 128 + (g ^ ((first_d + i) % 8)) * 16);
        scale[i] = scales[(in_block + d + i) / 128];
      }
    }
    w.convert(to, bytes, scale);
  }
};

}  // namespace megartp::device
