// qkv_a as two kernels: split-K GEMM tiles that leave fp32 partials, and a finalizer, one CTA a row and part:
// part 0: q = FP8(RMSNorm(z[0, n_q))); part 1: kv = BF16(RMSNorm(latent) | RoPE(key)) and the cache record.
#pragma once

#include "ops/common/device/fp8_gemm.cuh"
#include "ops/common/device/row_finalize.cuh"

namespace megartp::device {

struct QkvAGemmParams {
  TensorMap x_map;          // E4M3 [M, K]
  TensorMap q_map;          // E4M3 [n_q, K] (checkpoint layout)
  TensorMap kv_map;         // E4M3 [n_kv, K]
  const uint8_t* q_pieces;  // tiled layout
  const uint8_t* kv_pieces;
  const float* q_scale;  // F32 [ceil(n_q / 128), K blocks]
  const float* kv_scale;
  const float* x_scale;  // F32 [M, K blocks]
  float* partial;        // F32 [splits, M, n_q + n_kv]
  uint32_t m;
  uint32_t k_blocks;
  uint32_t n_q;
  uint32_t n_kv;
  uint32_t splits;
};

// Grid: N tiles x splits (splits innermost), M tiles.
template <class S, int kWait>
// (One CTA at least: without that ptxas 13.0 makes room for six of the smallest, and spills for it.)
__global__ void __launch_bounds__(S::kThreads, S::kTileM <= 8 ? 1 : 0)
    qkv_a_gemm(const __grid_constant__ QkvAGemmParams p) {
  extern __shared__ uint8_t dynamic[];
  const uint32_t max_blocks = ceil_div(p.k_blocks, p.splits);
  const GemmSmem<S> smem(dynamic, max_blocks);
  const KernelFrame<kWait> frame;
  if (threadIdx.x == 0) smem.init();
  frame.enter();
  __syncthreads();
  frame.after_prologue();

  const uint32_t split = blockIdx.x % p.splits;
  uint32_t n_tile = blockIdx.x / p.splits;
  const uint32_t q_tiles = ceil_div(p.n_q, S::kTileN);
  const bool is_kv = n_tile >= q_tiles;
  if (is_kv) n_tile -= q_tiles;
  const uint32_t n_begin = n_tile * S::kTileN;
  const uint32_t n_count = min(static_cast<uint32_t>(S::kTileN), (is_kv ? p.n_kv : p.n_q) - n_begin);
  const BlockRange range = split_blocks(p.k_blocks, p.splits, split);
  const GemmTile t = gemm_tile<S>(p.x_map, p.x_scale, is_kv ? p.kv_map : p.q_map, is_kv ? p.kv_pieces : p.q_pieces,
                                  is_kv ? p.kv_scale : p.q_scale, p.k_blocks, is_kv ? p.n_kv : p.n_q, n_begin, p.m,
                                  blockIdx.y * S::kTileM, range.begin, range.count);

  if (is_weight_loader<S>()) {
    load_weights(smem, t);
  } else if (is_activation_loader<S>()) {
    load_activations(smem, t, frame);
  } else {
    load_weight_scales(smem, t, threadIdx.x);
    GemmSums<S> sums;
    multiply(smem, t, threadIdx.x, frame, sums);
    const uint32_t n = p.n_q + p.n_kv;
    float* out = p.partial + (uint64_t{split} * p.m + t.m_begin) * n + (is_kv ? p.n_q : 0) + n_begin;
    sums.for_each(threadIdx.x, [&](uint32_t row, uint32_t token, float v) {
      if (row < n_count && token < t.m_count) out[uint64_t{token} * n + row] = v;
    });
  }
}

struct QkvAFinalizeParams {
  const float* partial;  // F32 [splits, M, n_q + n_kv]
  const uint4* q_norm;   // BF16 [n_q]
  const uint4* kv_norm;  // BF16 [kv_lora]
  const int32_t* positions;
  const float* cos_sin;  // F32 [POS, rope]
  const int32_t* slot_mapping;
  uint8_t* cache;  // records of 64-token pages
  uint2* q;        // E4M3 [M, n_q]
  float* q_scale;  // F32 [M, ceil(n_q / 128)]
  uint16_t* kv;    // BF16 [M, kv_lora + rope]
  uint32_t m;
  uint32_t splits;
  uint32_t n_q;
  uint32_t kv_lora;
  uint32_t rope;
  float eps;
  uint32_t pow2_scale;
  uint32_t mla_pow2_scale;
};

// Eight values of a row of kv from column 8 * at: BF16 to kv; to the cache record the latent's codes and scales, or the
// key's BF16.
__device__ inline void store_kv(const QkvAFinalizeParams& p, uint32_t row, uint64_t slot, uint32_t at, bool is_latent,
                                const float (&v)[8], const uint2& codes, float scale) {
  const uint4 halves{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
  *reinterpret_cast<uint4*>(p.kv + uint64_t{row} * (p.kv_lora + p.rope) + at * 8) = halves;
  const uint32_t groups = ceil_div(p.kv_lora, 128);
  uint8_t* record = p.cache + slot * (p.kv_lora + 4 * groups + 2 * p.rope);
  if (is_latent) {
    *reinterpret_cast<uint2*>(record + at * 8) = codes;
    if (at % 16 == 0) *reinterpret_cast<float*>(record + p.kv_lora + at / 16 * 4) = scale;
  } else {
    *reinterpret_cast<uint4*>(record + p.kv_lora + 4 * groups + (at * 8 - p.kv_lora) * 2) = halves;
  }
}

// What one thread has of one part of a row, eight values at column 8 * at of the part.
struct QkvAFinalizePart {
  uint32_t at;
  bool is_kv;
  bool is_normed;
  bool is_key;
  uint4 gain;
  uint64_t slot;
  float cosines[4];
  float sines[4];

  __device__ static uint32_t width(const QkvAFinalizeParams& p, bool is_kv) { return is_kv ? p.kv_lora : p.n_q; }
  __device__ uint32_t width(const QkvAFinalizeParams& p) const { return width(p, is_kv); }

  // Weights and arguments: constant while anything runs.
  __device__ static QkvAFinalizePart fetch(const QkvAFinalizeParams& p, uint32_t row, bool is_kv, uint32_t at) {
    QkvAFinalizePart t = {};
    t.at = at;
    t.is_kv = is_kv;
    t.is_normed = at * 8 < width(p, is_kv);
    t.gain = t.is_normed ? load_weight((is_kv ? p.kv_norm : p.q_norm) + at) : uint4{};
    const int32_t position = is_kv ? p.positions[row] : 0;
    const uint32_t pair = at * 4 - p.kv_lora / 2;  // of a key thread's first values
    t.is_key = is_kv && at * 8 >= p.kv_lora && at * 8 < p.kv_lora + p.rope;
    if (t.is_key) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        t.cosines[i] = p.cos_sin[uint64_t(position) * p.rope + pair + i];
        t.sines[i] = p.cos_sin[uint64_t(position) * p.rope + p.rope / 2 + pair + i];
      }
    }
    t.slot = is_kv ? p.slot_mapping[row] : 0;
    return t;
  }

  __device__ bool is_there() const { return is_normed || is_key; }
  // The sums, rounded to BF16.
  template <int kSplits>
  __device__ void load(const QkvAFinalizeParams& p, uint32_t row, float (&v)[8]) const {
    const uint32_t n = p.n_q + p.kv_lora + p.rope;
    if (is_there())
      sum_partials8<kSplits>(p.partial + uint64_t{row} * n + (is_kv ? p.n_q : 0) + at * 8, uint64_t{p.m} * n, p.splits,
                             v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = round_bf16(v[i]);
  }
  __device__ float sum_squares(const float (&v)[8]) const {
    float sum = 0.0F;
    if (!is_normed) return sum;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[i] * v[i];
    return sum;
  }

  // By which normed values are multiplied. `sum`: of the squares of the part's.
  __device__ float factor(const QkvAFinalizeParams& p, float sum) const {
    return norm_factor(sum, static_cast<float>(width(p)), p.eps);
  }
  __device__ void store(const QkvAFinalizeParams& p, uint32_t row, float (&v)[8], float factor) const {
    if (is_normed) {
      const uint32_t g[4] = {gain.x, gain.y, gain.z, gain.w};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        v[i] = round_bf16(v[i] * factor * ((i & 1) != 0 ? bf16_high(g[i / 2]) : bf16_low(g[i / 2])));
    } else if (is_key) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = rotate(v[2 * i], v[2 * i + 1], cosines[i], sines[i]);
        v[2 * i] = pair.x;
        v[2 * i + 1] = pair.y;
      }
    }
    float amax = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(v[i]));
    if (!is_normed) amax = 0.0F;
    const float scale = group_scale(group_max<16>(amax), (is_kv ? p.mla_pow2_scale : p.pow2_scale) != 0);
    uint32_t words[2];
    quantize(v, scale, words);
    const uint2 codes{words[0], words[1]};
    if (!is_kv) {
      if (is_normed) {
        p.q[uint64_t{row} * (p.n_q / 8) + at] = codes;
        if (at % 16 == 0) p.q_scale[uint64_t{row} * ceil_div(p.n_q, 128) + at / 16] = scale;
      }
      return;
    }
    if (is_there()) store_kv(p, row, slot, at, is_normed, v, codes, scale);
  }
};

// Grid: M rows, 2 parts. Widths are multiples of 8; kThreads * 8 values at least.
template <int kThreads, int kSplits, int kWait>
__global__ void __launch_bounds__(kThreads) qkv_a_finalize(const __grid_constant__ QkvAFinalizeParams p) {
  __shared__ float slots[kThreads / 32];
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  const uint32_t row = blockIdx.x;
  const auto part = QkvAFinalizePart::fetch(p, row, blockIdx.y != 0, threadIdx.x);
  frame.wait_inputs();
  float v[8] = {};
  part.load<kSplits>(p, row, v);
  frame.mark(0);
  const float sum = cta_sum<kThreads>(part.sum_squares(v), slots);
  frame.mark(1);
  part.store(p, row, v, part.factor(p, sum));
}

}  // namespace megartp::device
