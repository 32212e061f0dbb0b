// add_rmsnorm_quant in the persistent kernel: a row an instruction. A thread has up to four pieces; the sums are added
// as if each piece had a thread of its own, as in rmsnorm_quant with one piece a thread.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/rmsnorm_quant/device/rmsnorm_quant.cuh"
#include "ops/rmsnorm_quant/rmsnorm_quant_abi.h"

namespace megartp::device {

template <uint32_t kOp>
struct RmsnormQuantMega {
  static constexpr uint32_t kOpcode = kOp;
  static constexpr bool kHasXScales = false;
  static constexpr int kPieces = 4;  // of a thread; rows of up to 8 * kPieces * kMegaConsumers values

  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext&) {}
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const auto& spec = c.spec<ops::RmsnormQuantSpec>();
    const RmsnormQuantParams p{c.operand<const uint4>(ops::kRmsnormQuantX),
                               c.operand<const uint4>(ops::kRmsnormQuantResidualIn),
                               c.operand<const uint4>(ops::kRmsnormQuantW),
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
    uint4 w[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t at = i * kMegaConsumers + threadIdx.x;
      w[i] = at < vectors ? load_weight(p.w + at) : uint4{};
    }
    c.wait_inputs_ready();
    uint4 x[kPieces];
    uint4 add[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t at = i * kMegaConsumers + threadIdx.x;
      x[i] = at < vectors ? load_global(p.x + row * vectors + at) : uint4{};
      add[i] = at < vectors ? load_global(p.residual_in + row * vectors + at) : uint4{};
    }
    // Loops that stay loops: an op runs once or twice on an SM, and fetching its code takes longer than running it.
    RmsnormPiece pieces[kPieces];
#pragma unroll 1
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t at = i * kMegaConsumers + threadIdx.x;
      RmsnormPiece piece;
      const float sum = warp_sum(piece.add(x[0], add[0], at < vectors ? p.residual + row * vectors + at : nullptr));
      if (lane_index() == 0) c.s.reduce[at / 32] = sum;  // zero behind the row
      push(x, x[0]);
      push(add, add[0]);
      push(pieces, piece);
    }
    c.sync_consumers();
    float sum = 0.0F;
#pragma unroll 8
    for (uint32_t i = 0; i < warps; ++i) sum += c.s.reduce[i];
    c.sync_consumers();  // the next sum writes there
    const float factor = norm_factor(sum, static_cast<float>(p.cols), p.eps);
#pragma unroll 1
    for (int i = 0; i < kPieces; ++i) {
      pieces[0].finish(p, row, i * kMegaConsumers + threadIdx.x, w[0], factor);
      push(pieces, pieces[0]);
      push(w, w[0]);
    }
  }

 private:
  // The first leaves, `v` becomes the last: so that a loop finds its element in the same registers each time.
  template <class T>
  __device__ static void push(T (&list)[kPieces], const T v) {
#pragma unroll
    for (int i = 1; i < kPieces; ++i) list[i - 1] = list[i];
    list[kPieces - 1] = v;
  }
};

}  // namespace megartp::device
