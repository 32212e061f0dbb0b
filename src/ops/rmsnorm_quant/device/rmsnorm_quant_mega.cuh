// add_rmsnorm_quant in the persistent kernel: an instruction norms a row and writes some of its groups. The sums are
// added as if each eight values had a thread of their own, as in rmsnorm_quant with one piece a thread.
//
// Pages: the row of x, in whose place the sum with the other is kept; the row of the residual; the gains. From there a
// loop can take them piece by piece: registers cannot be indexed, and code for each piece takes longer to be fetched
// than to run.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/rmsnorm_quant/device/rmsnorm_quant.cuh"
#include "ops/rmsnorm_quant/rmsnorm_quant_abi.h"

namespace megartp::device {

template <uint32_t kOp>
struct RmsnormQuantMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = false;

  __device__ static void load_weights(MegaContext& c) {
    load_row(c, c.pages.plus(2), c.operand<const uint8_t>(ops::kRmsnormQuantW), 0, true);
  }
  __device__ static void load_activations(MegaContext& c) {
    fence_async_global();  // both may have been written by ordinary stores
    const uint64_t row = c.payload()[0];
    load_row(c, c.pages, c.operand<const uint8_t>(ops::kRmsnormQuantX), row, false);
    load_row(c, c.pages.plus(1), c.operand<const uint8_t>(ops::kRmsnormQuantResidualIn), row, false);
  }
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const auto& spec = c.spec<ops::RmsnormQuantSpec>();
    const RmsnormQuantParams p{nullptr,
                               nullptr,
                               nullptr,
                               c.operand<uint4>(ops::kRmsnormQuantResidual),
                               c.operand<uint4>(ops::kRmsnormQuantY),
                               c.operand<uint2>(ops::kRmsnormQuantQ),
                               c.operand<float>(ops::kRmsnormQuantScale),
                               spec.cols,
                               spec.eps,
                               spec.pow2_scale};
    const uint64_t row = c.payload()[0];
    const uint32_t vectors = p.cols / 8;
    const uint32_t warps = ceil_div(vectors, 32);  // of the ordinary kernel
    uint4* x = reinterpret_cast<uint4*>(c.page(c.pages));
    const uint4* residual_in = reinterpret_cast<const uint4*>(c.page(c.pages.plus(1)));
    const uint4* gains = reinterpret_cast<const uint4*>(c.page(c.pages.plus(2)));
    c.wait_page_full(c.pages.plus(1));
    c.wait_page_full(c.pages);
    c.wait_inputs_ready();  // before the first store
    const uint32_t begin = c.payload()[1] / 8;
    const uint32_t end = begin + c.payload()[2] / 8;
    // This thread's sums of pieces 128 threads apart, the last one in the last register.
    float sums[kMaxPieces] = {};
    uint32_t pieces = 0;
#pragma unroll 1
    for (uint32_t at = threadIdx.x; at < ceil_div(warps * 32, kMegaConsumers) * kMegaConsumers; at += kMegaConsumers) {
      const bool is_there = at < vectors;
      RmsnormPiece piece;
      const float sum = piece.add(is_there ? x[at] : uint4{}, is_there ? residual_in[at] : uint4{},
                                  at >= begin && at < end ? p.residual + row * vectors + at : nullptr);
      if (is_there) x[at] = piece.packed();
#pragma unroll
      for (uint32_t k = 0; k + 1 < kMaxPieces; ++k) sums[k] = sums[k + 1];
      sums[kMaxPieces - 1] = sum;
      ++pieces;
    }
    const uint32_t warp = warp_index();  // by all lanes
    const uint32_t piece = warp_sum_of_each(sums) + pieces;
    if (piece >= kMaxPieces) c.s.reduce[(piece - kMaxPieces) * kMegaConsumerWarps + warp] = sums[0];
    c.sync_consumers();
    float sum = 0.0F;
#pragma unroll 8
    for (uint32_t i = 0; i < warps; ++i) sum += c.s.reduce[i];
    c.sync_consumers();  // the next sum writes there
    const float factor = norm_factor(sum, static_cast<float>(p.cols), p.eps);
    c.wait_page_full(c.pages.plus(2));
    // By groups of 16 threads: x is another thread's here, and the sum's barrier has passed.
#pragma unroll 1
    for (uint32_t first = begin; first < end; first += kMegaConsumers) {
      const uint32_t at = first + threadIdx.x;
      const bool is_there = at < end;
      RmsnormPiece piece;
      piece.unpack(is_there ? x[at] : uint4{});
      piece.finish(p, row, at, is_there ? gains[at] : uint4{}, factor, is_there);
    }
    fence_async_shared();  // the next to write the pages is the copy engine
    for (uint32_t i = 0; i < 3; ++i) c.release_page(c.pages.plus(i));
  }

 private:
  static constexpr uint32_t kMaxPieces = 8;
  static_assert(kMaxPieces * kMegaConsumerWarps <= sizeof MegaShared::reduce / sizeof(float));

  __device__ static void load_row(MegaContext& c, const PageCursor& page, const uint8_t* rows, uint64_t row,
                                  bool is_weight) {
    if (is_weight) {
      c.claim_weight_page(page);
    } else {
      c.wait_page_empty(page);
    }
    if (lane_index() != 0) return;
    const uint32_t bytes = c.spec<ops::RmsnormQuantSpec>().cols * 2;
    mbarrier_arrive_expect(&c.s.bar.page_full[page.page], bytes);
    bulk_load(c.page(page), rows + row * bytes, bytes, &c.s.bar.page_full[page.page]);
  }
};

}  // namespace megartp::device
