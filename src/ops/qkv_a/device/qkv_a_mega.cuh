// qkv_a in the persistent kernel: GEMM tiles that leave fp32 partials, and a finalizer of one instruction a row that
// does what the two CTAs of qkv_a_finalize do.
#pragma once

#include "ops/common/device/fp8_gemm_mega.cuh"
#include "ops/qkv_a/device/qkv_a.cuh"
#include "ops/qkv_a/qkv_a_abi.h"

namespace megartp::device {

template <uint32_t kOp>
using QkvAGemmMega = GemmMega<kOp, SplitGemm<ops::QkvASpec, ops::kQkvAXScale, ops::kQkvAQProj, ops::kQkvAQProjScale,
                                             ops::kQkvAKvProj, ops::kQkvAKvProjScale, ops::kQkvAPartial>>;

template <uint32_t kOp>
struct QkvAFinalizeMega {
  static constexpr uint32_t kOpcode = kOp;
  static constexpr bool kHasXScales = false;
  static constexpr int kMaxSplits = 8;

  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext&) {}
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const uint32_t row = c.payload()[0];
    auto q = QkvAFinalizePart::fetch(params(c), row, false, threadIdx.x);
    auto kv = QkvAFinalizePart::fetch(params(c), row, true, threadIdx.x);
    c.wait_inputs_ready();
    // Both parts' loads at once: each takes a trip to the L2.
    float q_values[8] = {};
    float kv_values[8] = {};
    q.template load<kMaxSplits>(params(c), row, q_values);
    kv.template load<kMaxSplits>(params(c), row, kv_values);
    float sums[2] = {q.sum_squares(q_values), kv.sum_squares(kv_values)};
    mega_sums<kMegaConsumerWarps>(c, sums);
    // A loop, so that the code is there for the second part.
#pragma unroll 1
    for (uint32_t part = 0; part < 2; ++part) {
      q.store(params(c), row, q_values, sums[0]);
      q = kv;
      sums[0] = sums[1];
#pragma unroll
      for (int i = 0; i < 8; ++i) q_values[i] = kv_values[i];
    }
  }

 private:
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
