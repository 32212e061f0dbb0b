// One tile of a block-scaled FP8 GEMM with few rows: out[m, n] = sum over 128-wide K blocks of
// (sum of x * w in the block, tensor cores) * (x_scale[m, kb] * w_scale[n / 128, kb]), fp32, K blocks ascending.
//
// The operands are swapped: 64 or 128 weight rows are wgmma's M, the tokens its N. Roles, each in warps of its own:
//
//   weight loader      ring of stages <- weights; waits for nobody but the ring
//   activation loader  waits for the producers, then the same stages <- x
//   consumers          one warpgroup per 64 or 128 weight rows: products, promotion, epilogue
//
// The products are FP8 ones (wgmma), whose sums within a block keep some 14 bits, or, where kExact asks for it, FP16
// ones (device/fp8_block.cuh): exact, for sums that are quantised again, and dearer.
//
// The loaders fill their halves of a stage on barriers of their own; it is empty when every consumer has arrived (a
// lane for its warp where the tensor core alone has read it). The weight loader keeps at most kInFlight stages on their
// way: a few saturate the memory, and what an SM has asked for beyond that only delays the activations that the
// critical path waits for.
#pragma once

#include "device/fp8_block.cuh"
#include "device/frame.cuh"
#include "device/numeric.cuh"
#include "device/wgmma.cuh"

namespace megartp::device {

inline constexpr uint32_t kPieceRows = 64;
inline constexpr uint32_t kPieceBytes = 8192;  // WeightLayout::kTiles64x128

// kTileN: weight rows of a tile, 64 or 128. kTileM: tokens, 8 to 128. kBlocks: K blocks of a stage. kTiled: the
// weights' layout. kExact: the kind of products.
template <int kTileN_, int kTileM_, int kBlocks_, int kStages_, int kInFlight_, bool kTiled_, bool kExact_>
struct GemmShape {
  static constexpr int kInFlight = kInFlight_;
  static constexpr int kTileN = kTileN_;
  static constexpr int kTileM = kTileM_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kStages = kStages_;
  static constexpr bool kTiled = kTiled_;
  static constexpr bool kExact = kExact_;
  // A warpgroup for each half of a tile of 128 rows. One for both where every warp converts x for itself and has the
  // registers for the sums of both.
  static constexpr int kWarpgroups = kTileN == 128 && (kTileM > 32 || !kExact) ? 2 : 1;
  static constexpr int kHalves = kTileN / 64 / kWarpgroups;
  static constexpr int kConsumers = kWarpgroups * 128;
  static constexpr int kThreads = kConsumers + 64;
  static constexpr int kWeightBytes = kTileN * 128 * kBlocks;
  static constexpr int kXBytes = kTileM * 128 * kBlocks;
  static constexpr int kStageBytes = kWeightBytes + kXBytes;
  static constexpr int kRegisters = kTileM / 2;

  // Dynamic shared memory: ring (1024-byte aligned), barriers, scales of x [blocks, kTileM], scales of w [blocks].
  __host__ __device__ static constexpr uint32_t barrier_offset() { return kStages * kStageBytes; }
  __host__ __device__ static constexpr uint32_t scale_offset() { return barrier_offset() + 256; }
  __host__ __device__ static constexpr uint32_t smem_bytes(uint32_t k_blocks) {
    return 1024 + scale_offset() + 4 * k_blocks * (kTileM + 1);
  }
  static_assert(kStages <= 8 && kBlocks <= 4 && kTileM % 8 == 0 && kStageBytes % 1024 == 0);
};

// Where one tile's operands are.
struct GemmTile {
  const uint8_t* pieces;     // kTiled: the first piece of the tile's first 64 rows
  uint32_t piece_row_bytes;  // from 64 rows to the next 64
  const TensorMap* w_map;    // otherwise: FP8 [N, K], box {128, kTileN}
  uint32_t n_begin;          // row of w_map
  uint32_t halves;           // of 64 rows that the tile has
  const float* w_scale;      // of the tile's first K block; consecutive
  const TensorMap* x_map;    // FP8 [M, K], box {128, kTileM}
  const float* x_scale;      // F32 [M, x_scale_stride], at row 0 and the tile's first K block
  uint32_t x_scale_stride;
  uint32_t m_begin;
  uint32_t m_count;
  uint32_t block_begin;  // K blocks
  uint32_t block_count;
};

// Of a projection [n, K] with scales [ceil(n / 128), k_blocks]: weight rows from n_begin (a multiple of kTileN), rows
// of x from m_begin, K blocks [block_begin, block_begin + block_count). `pieces`, `w_scale` and `x_scale` are the
// tensors.
template <class S>
__device__ inline GemmTile gemm_tile(const TensorMap& x_map, const float* x_scale, const TensorMap& w_map,
                                     const uint8_t* pieces, const float* w_scale, uint32_t k_blocks, uint32_t n,
                                     uint32_t n_begin, uint32_t m, uint32_t m_begin, uint32_t block_begin,
                                     uint32_t block_count) {
  GemmTile t;
  t.piece_row_bytes = k_blocks * kPieceBytes;
  t.pieces = pieces + uint64_t{n_begin / kPieceRows} * t.piece_row_bytes + block_begin * kPieceBytes;
  t.w_map = &w_map;
  t.n_begin = n_begin;
  t.halves = min(static_cast<uint32_t>(S::kTileN / 64), ceil_div(n - n_begin, kPieceRows));
  t.w_scale = w_scale + uint64_t{n_begin / 128} * k_blocks + block_begin;
  t.x_map = &x_map;
  t.x_scale = x_scale + block_begin;
  t.x_scale_stride = k_blocks;
  t.m_begin = m_begin;
  t.m_count = min(static_cast<uint32_t>(S::kTileM), m - m_begin);
  t.block_begin = block_begin;
  t.block_count = block_count;
  return t;
}

template <class S>
struct GemmSmem {
  uint8_t* ring;
  uint64_t* w_full;
  uint64_t* x_full;
  uint64_t* empty;
  float* x_scale;
  float* w_scale;

  __device__ explicit GemmSmem(uint8_t* dynamic, uint32_t max_blocks) {
    ring = dynamic + ((1024 - (shared_address(dynamic) & 1023U)) & 1023U);
    w_full = reinterpret_cast<uint64_t*>(ring + S::barrier_offset());
    x_full = w_full + S::kStages;
    empty = x_full + S::kStages;
    x_scale = reinterpret_cast<float*>(ring + S::scale_offset());
    w_scale = x_scale + max_blocks * S::kTileM;
  }
  __device__ uint8_t* weights(uint32_t stage) const { return ring + stage * S::kStageBytes; }
  __device__ uint8_t* x(uint32_t stage) const { return weights(stage) + S::kWeightBytes; }
  // By one thread.
  __device__ void init() const {
    for (int s = 0; s < S::kStages; ++s) {
      mbarrier_init(&w_full[s], 1);
      mbarrier_init(&x_full[s], 1);
      mbarrier_init(&empty[s], S::kExact ? S::kConsumers : S::kConsumers / 32);
    }
    mbarrier_init_fence();
  }
};

// The weights of half h and block b of a stage.
template <class S>
__device__ inline uint32_t weight_offset(int half, int block) {
  if constexpr (S::kTiled) return (half * S::kBlocks + block) * kPieceBytes;
  return (block * (S::kTileN / 64) + half) * kPieceBytes;
}

// By a warp.
template <class S>
__device__ void load_weights(const GemmSmem<S>& smem, const GemmTile& t) {
  if (lane_index() != 0) return;
  if constexpr (!S::kTiled) tma_prefetch_map(t.w_map);
  const uint32_t iterations = ceil_div(t.block_count, S::kBlocks);
  for (uint32_t i = 0; i < iterations; ++i) {
    const uint32_t stage = i % S::kStages;
    if (i >= S::kStages) mbarrier_wait(&smem.empty[stage], (i / S::kStages - 1) & 1);
    if (i >= S::kInFlight)
      mbarrier_wait(&smem.w_full[(i - S::kInFlight) % S::kStages], ((i - S::kInFlight) / S::kStages) & 1);
    const uint32_t begin = i * S::kBlocks;
    const uint32_t blocks = min(static_cast<uint32_t>(S::kBlocks), t.block_count - begin);
    if constexpr (S::kTiled) {
      mbarrier_arrive_expect(&smem.w_full[stage], blocks * t.halves * kPieceBytes);
#pragma unroll
      for (uint32_t half = 0; half < S::kTileN / 64; ++half)
        if (half < t.halves)
          bulk_load(smem.weights(stage) + weight_offset<S>(half, 0),
                    t.pieces + half * t.piece_row_bytes + begin * kPieceBytes, blocks * kPieceBytes,
                    &smem.w_full[stage], kEvictFirst);
    } else {
      // Rows beyond the weight come as zeros.
      mbarrier_arrive_expect(&smem.w_full[stage], blocks * S::kTileN * 128);
      for (uint32_t b = 0; b < blocks; ++b)
        tma_load_2d(smem.weights(stage) + weight_offset<S>(0, b), t.w_map, (t.block_begin + begin + b) * 128, t.n_begin,
                    &smem.w_full[stage], kEvictFirst);
    }
  }
}

// By a warp.
template <class S, class Frame>
__device__ void load_activations(const GemmSmem<S>& smem, const GemmTile& t, const Frame& frame) {
  if (lane_index() != 0) return;
  tma_prefetch_map(t.x_map);
  frame.wait_inputs();
  // x was written by ordinary stores; the copy engine reads it.
  fence_async_global();
  const uint32_t iterations = ceil_div(t.block_count, S::kBlocks);
  for (uint32_t i = 0; i < iterations; ++i) {
    const uint32_t stage = i % S::kStages;
    if (i >= S::kStages) mbarrier_wait(&smem.empty[stage], (i / S::kStages - 1) & 1);
    const uint32_t begin = i * S::kBlocks;
    const uint32_t blocks = min(static_cast<uint32_t>(S::kBlocks), t.block_count - begin);
    mbarrier_arrive_expect(&smem.x_full[stage], blocks * S::kTileM * 128);
    for (uint32_t b = 0; b < blocks; ++b)
      tma_load_2d(smem.x(stage) + b * S::kTileM * 128, t.x_map, (t.block_begin + begin + b) * 128, t.m_begin,
                  &smem.x_full[stage]);
  }
}

// The sums of a consumer thread: half, then wgmma's registers (multiply_block() has the same).
template <class S>
struct GemmSums {
  float v[S::kHalves][S::kRegisters];

  // f(n in the tile, token in the tile, value); tokens in pairs of neighbours, rows of n 8 apart.
  template <class F>
  __device__ void for_each(uint32_t thread, F&& f) const {
    const uint32_t row = thread / 128 * 64 * S::kHalves + thread % 128 / 32 * 16 + thread % 32 / 4;
    const uint32_t q = thread % 4;
#pragma unroll
    for (int half = 0; half < S::kHalves; ++half)
#pragma unroll
      for (int i = 0; i < S::kRegisters; ++i)
        f(row + half * 64 + (i & 2) * 4, (i / 4) * 8 + q * 2 + (i & 1), v[half][i]);
  }
};

// The first kCount blocks of stage `it`, which is there, by exact products; then gives it back.
template <class S, int kCount>
__device__ inline void multiply_stage_exactly(const GemmSmem<S>& smem, uint32_t it, uint32_t first_half,
                                              GemmSums<S>& sums) {
  const uint32_t stage = it % S::kStages;
  const uint8_t* weights = smem.weights(stage) + warp_index() % 4 * 16 * 128;
  constexpr uint32_t kHalfBytes = S::kTiled ? S::kBlocks * kPieceBytes : kPieceBytes;
#pragma unroll
  for (int b = 0; b < kCount; ++b) {
    const uint32_t block = it * S::kBlocks + b;
    multiply_block<S::kHalves, S::kTileM / 8>(weights + weight_offset<S>(first_half, b), kHalfBytes,
                                              smem.x(stage) + b * S::kTileM * 128, smem.x_scale + block * S::kTileM,
                                              smem.w_scale[block], sums.v[0]);
  }
  // Every lane for its own reads: racecheck does not follow one that arrives for the others.
  mbarrier_arrive(&smem.empty[stage]);
}

// The same by FP8 products. All are started at once; blocks are promoted in ascending order while later ones still run.
template <class S, int kCount>
__device__ inline void multiply_stage_fp8(const GemmSmem<S>& smem, uint32_t it, uint32_t first_half,
                                          GemmSums<S>& sums) {
  const uint32_t stage = it % S::kStages;
  const uint8_t* weights = smem.weights(stage);
  const uint8_t* x = smem.x(stage);
  float d[kCount][S::kHalves][S::kRegisters];
  wgmma_fence();
#pragma unroll
  for (int b = 0; b < kCount; ++b) {
#pragma unroll
    for (int h = 0; h < S::kHalves; ++h)
      wgmma_block<S::kTileM>(d[b][h], weights + weight_offset<S>(first_half + h, b), x + b * S::kTileM * 128);
    wgmma_commit();
  }
  const auto promote_all = [&](int b) {
    const uint32_t block = it * S::kBlocks + b;
#pragma unroll
    for (int j = 0; j < S::kTileM / 8; ++j) {
      const float2 scale = block_scale(smem.x_scale + block * S::kTileM, j, smem.w_scale[block]);
#pragma unroll
      for (int h = 0; h < S::kHalves; ++h) promote(sums.v[h] + 4 * j, d[b][h] + 4 * j, scale);
    }
  };
  const auto finish = [&](int b) {
#pragma unroll
    for (int h = 0; h < S::kHalves; ++h) wgmma_hold(d[b][h]);
    promote_all(b);
  };
  if constexpr (kCount == 4) {
    wgmma_wait<3>();
    finish(0);
  }
  if constexpr (kCount >= 3) {
    wgmma_wait<2>();
    finish(kCount - 3);
  }
  if constexpr (kCount >= 2) {
    wgmma_wait<1>();
    finish(kCount - 2);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int h = 0; h < S::kHalves; ++h) wgmma_hold(d[kCount - 1][h]);
  if (lane_index() == 0) mbarrier_arrive(&smem.empty[stage]);
  promote_all(kCount - 1);
}

template <class S, int kCount>
__device__ inline void multiply_stage(const GemmSmem<S>& smem, uint32_t it, uint32_t first_half, GemmSums<S>& sums) {
  const uint32_t stage = it % S::kStages;
  mbarrier_wait(&smem.x_full[stage], (it / S::kStages) & 1);
  mbarrier_wait(&smem.w_full[stage], (it / S::kStages) & 1);
  if constexpr (S::kExact)
    multiply_stage_exactly<S, kCount>(smem, it, first_half, sums);
  else
    multiply_stage_fp8<S, kCount>(smem, it, first_half, sums);
}

// By all consumer threads, `thread` from 0, before they wait for the producers; multiply() has the barrier behind it.
template <class S>
__device__ void load_weight_scales(const GemmSmem<S>& smem, const GemmTile& t, uint32_t thread) {
  for (uint32_t b = thread; b < t.block_count; b += S::kConsumers) smem.w_scale[b] = t.w_scale[b];
}

// By all consumer threads, `thread` from 0, after load_weight_scales(). Named barrier 1 is theirs.
template <class S, class Frame>
__device__ void multiply(const GemmSmem<S>& smem, const GemmTile& t, uint32_t thread, const Frame& frame,
                         GemmSums<S>& sums) {
  frame.wait_inputs();
  // Several loads at a time: each takes a trip to the L2.
  constexpr uint32_t kAtOnce = 4;
  const uint32_t scales = t.block_count * S::kTileM;
  for (uint32_t first = thread; first < scales; first += kAtOnce * S::kConsumers) {
    float v[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint32_t i = first + k * S::kConsumers;
      const uint32_t m = i / t.block_count;
      const bool is_there = i < scales && m < t.m_count;
      v[k] = is_there ? load_global(t.x_scale + (t.m_begin + m) * t.x_scale_stride + i % t.block_count) : 0.0F;
    }
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint32_t i = first + k * S::kConsumers;
      if (i < scales) smem.x_scale[i % t.block_count * S::kTileM + i / t.block_count] = v[k];
    }
  }
  named_barrier(1, S::kConsumers);
  frame.mark(0);

#pragma unroll
  for (int h = 0; h < S::kHalves; ++h)
#pragma unroll
    for (int i = 0; i < S::kRegisters; ++i) sums.v[h][i] = 0.0F;
  const uint32_t first_half = warp_index() / 4 * S::kHalves;
  const uint32_t full_stages = t.block_count / S::kBlocks;
#if MEGARTP_TRACE
  // When the first stage has come: activations, weights.
  if (t.block_count > 0) {
    mbarrier_wait(&smem.x_full[0], 0);
    frame.mark(1);
    mbarrier_wait(&smem.w_full[0], 0);
    frame.mark(2);
  }
#endif
  for (uint32_t it = 0; it < full_stages; ++it) multiply_stage<S, S::kBlocks>(smem, it, first_half, sums);
  // The last stage may have fewer blocks.
  if constexpr (S::kBlocks > 1) {
    const uint32_t rest = t.block_count % S::kBlocks;
    if (rest == 1) multiply_stage<S, 1>(smem, full_stages, first_half, sums);
    if constexpr (S::kBlocks > 2) {
      if (rest == 2) multiply_stage<S, 2>(smem, full_stages, first_half, sums);
      if (rest == 3) multiply_stage<S, 3>(smem, full_stages, first_half, sums);
    }
  }
  frame.mark(3);
}

// Role of a warp in a kernel of S::kThreads.
template <class S>
__device__ inline bool is_weight_loader() {
  return warp_index() == S::kConsumers / 32;
}
template <class S>
__device__ inline bool is_activation_loader() {
  return warp_index() == S::kConsumers / 32 + 1;
}

}  // namespace megartp::device
