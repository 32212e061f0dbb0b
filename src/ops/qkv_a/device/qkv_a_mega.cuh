// qkv_a in the persistent kernel: the finalizer of its GEMM, one or two instructions a row that do what the two CTAs of
// qkv_a_finalize do.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/qkv_a/device/qkv_a.cuh"
#include "ops/qkv_a/qkv_a_abi.h"

namespace megartp::device {

// Pages of a part: its columns of the row's partials, a split each half page.
template <uint32_t kOp>
struct QkvAFinalizeMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = false;

  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext& c) {
    fence_async_global();  // partials were written by ordinary stores
    const uint32_t* w = c.payload();
    const auto& spec = c.spec<ops::QkvASpec>();
    const uint64_t n = total_n(spec.gemm);
    PageCursor page = c.pages;
#pragma unroll 1
    for (uint32_t kv = 0; kv < 2; ++kv) {
      if ((w[2] >> kv & 1) == 0) continue;
      const float* from = c.operand<const float>(ops::kQkvAPartial) + w[0] * n + (kv != 0 ? q_lora(spec) : 0);
      const uint32_t bytes = (kv != 0 ? spec.kv_lora + spec.rope : q_lora(spec)) * 4;
#pragma unroll 1
      for (uint32_t split = 0; split < spec.gemm.splits; split += 2) {
        const uint32_t count = min(2U, spec.gemm.splits - split);
        c.wait_page_empty(page);
        if (lane_index() == 0) {
          uint64_t* full = &c.s.bar.page_full[page.page];
          mbarrier_arrive_expect(full, count * bytes);
#pragma unroll 1
          for (uint32_t i = 0; i < count; ++i)
            bulk_load(c.page(page) + i * kMegaPageBytes / 2, from + (split + i) * w[1] * n, bytes, full);
        }
        page.advance(1);
      }
    }
  }
  // Parts one after the other.
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const uint32_t parts = c.payload()[2];
    PageCursor page = c.pages;
#pragma unroll 1
    for (uint32_t kv = 0; kv < 2; ++kv)
      if ((parts >> kv & 1) != 0) finalize(c, kv != 0, page);
  }

 private:
  static constexpr int kPieces = 2;  // of eight values, of a thread

  // `page`: the part's first, then the one behind its last.
  __device__ __forceinline__ static void finalize(MegaContext& c, bool is_kv, PageCursor& page) {
    const uint32_t row = c.payload()[0];
    QkvAFinalizePart pieces[kPieces];
    float values[kPieces][8];
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      // The zero to which anything may be added: also minus zero stays what it is.
#pragma unroll
      for (int k = 0; k < 8; ++k) values[i][k] = -0.0F;
    }
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i)
      pieces[i] = QkvAFinalizePart::fetch(params(c), row, is_kv, i * kMegaConsumers + threadIdx.x);
    c.wait_inputs_ready();
    const uint32_t splits = c.spec<ops::QkvASpec>().gemm.splits;
#pragma unroll 1
    for (uint32_t split = 0; split < splits; ++split) {
      if (split % 2 == 0) c.wait_page_full(page);
#pragma unroll
      for (uint32_t i = 0; i < kPieces; ++i)
        if (pieces[i].is_there())
          add_values(c.page(page) + split % 2 * kMegaPageBytes / 2 + pieces[i].at * 32, values[i]);
      if (split % 2 == 0 && split + 1 != splits) continue;
      c.release_read_page(page);
      page.advance(1);
    }
    float sums[kPieces];
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int k = 0; k < 8; ++k) values[i][k] = round_bf16(values[i][k]);
      sums[i] = pieces[i].sum_squares(values[i]);
    }
    const float sum = mega_sum(c, sums);
    const float factor = pieces[0].factor(params(c), sum);
    // A loop, so that the code is there for the second piece.
#pragma unroll 1
    for (uint32_t i = 0; i < kPieces; ++i) {
      pieces[0].store(params(c), row, values[0], factor);
      pieces[0] = pieces[1];
#pragma unroll
      for (int k = 0; k < 8; ++k) values[0][k] = values[1][k];
    }
  }

  __device__ static void add_values(const uint8_t* from, float (&v)[8]) {
    const uint4 halves[2] = {load_shared(from), load_shared(from + 16)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x[4] = {__uint_as_float(halves[i].x), __uint_as_float(halves[i].y), __uint_as_float(halves[i].z),
                          __uint_as_float(halves[i].w)};
#pragma unroll
      for (int k = 0; k < 4; ++k) v[4 * i + k] += x[k];
    }
  }

  // Called anew where it is needed: addresses need not stay in registers.
  __device__ static QkvAFinalizeParams params(const MegaContext& c) {
    const auto& spec = c.spec<ops::QkvASpec>();
    QkvAFinalizeParams p;
    p.partial = c.operand<const float>(ops::kQkvAPartial);
    p.q_norm = c.operand<const uint4>(ops::kQkvAQNorm);
    p.kv_norm = c.operand<const uint4>(ops::kQkvAKvNorm);
    p.positions = c.operand<const int32_t>(ops::kQkvAPositions);
    p.cos_sin = c.operand<const float>(ops::kQkvACosSin);
    p.slot_mapping = c.operand<const int32_t>(ops::kQkvASlotMapping);
    p.cache = c.operand<uint8_t>(ops::kQkvACache);
    p.q = c.operand<uint2>(ops::kQkvAQ);
    p.q_scale = c.operand<float>(ops::kQkvAQScale);
    p.kv = c.operand<uint16_t>(ops::kQkvAKv);
    p.m = c.payload()[1];
    p.splits = spec.gemm.splits;
    p.n_q = spec.gemm.segment_rows[0];
    p.kv_lora = spec.kv_lora;
    p.rope = spec.rope;
    p.eps = spec.eps;
    p.pow2_scale = spec.pow2_scale;
    p.mla_pow2_scale = spec.mla_pow2_scale;
    return p;
  }
};

}  // namespace megartp::device
