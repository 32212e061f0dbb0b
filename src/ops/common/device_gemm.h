// How a block-scaled FP8 GEMM is cut for the GPU: the template arguments of device::GemmShape
// (ops/common/device/fp8_gemm.cuh) and the operands that all GEMM kernels take. Used by the NAME_device.cc of qkv_a,
// indexer_k, indexer_q and main_q.
//
// What decides a row's bits (K blocks, splits) never depends on M: a token has the same bits in every batch.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "ops/common/kernel_builder.h"

namespace megartp::ops {

// What a family fixes, for small M. M tiles of 64 and 128 take one K block a stage and as many more stages; where
// shared memory asks for it, fewer.
struct GemmTuning {
  uint32_t tile_n = 64;    // weight rows of a tile: 64 or 128
  uint32_t blocks = 2;     // K blocks of a stage
  uint32_t stages = 3;     // of the ring
  uint32_t in_flight = 2;  // stages of weights on their way
  // CTAs that shall fit an SM: 2 where there are more tiles than SMs, so that one starts while the other ends.
  uint32_t ctas_per_sm = 2;
  uint32_t max_tile_m = 128;
  // Weight rows of a tile at M tiles of 64, where what a CTA brings of x counts as much as its weights. Two CTAs with
  // 128 rows of both do not fit an SM.
  uint32_t large_tile_n = 64;
  // FP16 products, exact, in place of FP8 ones: for sums that are quantised again.
  bool is_exact = false;
};

// What a tile holds in shared memory besides its ring.
struct GemmNeeds {
  int64_t k_blocks = 0;   // of a tile at most
  uint32_t splits = 0;    // the sums meet in a cluster of so many CTAs (device::SplitRows); 0: they do not
  int64_t row_bytes = 0;  // more, of each row of x
  bool sums_in_ring = false;
  int64_t k_splits = 1;  // CTAs for the K of a tile, where they do not meet in a cluster
};

// GemmShape<tile_n, tile_m, blocks, stages, in_flight, is_tiled, is_exact>.
struct GemmCut {
  uint32_t tile_n = 0;
  uint32_t tile_m = 0;
  uint32_t blocks = 0;
  uint32_t stages = 0;
  uint32_t in_flight = 0;
  bool is_tiled = false;
  bool is_exact = false;

  uint32_t num_threads() const;
  int64_t smem_bytes(const GemmNeeds& needs) const;
  std::string text() const;
};

// The M tile for m rows: the smallest of 8, 16, 32, 64, 128 that holds them, or the largest.
uint32_t gemm_tile_m(int64_t m, uint32_t max_tile_m);

// The operands of one projection, as the graph has them.
struct GemmOperands {
  TensorId x = kInvalidId;        // E4M3 [M, K]
  TensorId x_scale = kInvalidId;  // F32 [M, K blocks]
  TensorId w = kInvalidId;        // E4M3 [N, K]
  TensorId w_scale = kInvalidId;  // F32 [ceil(N / 128), K blocks]
};

// The cut for all rows of x. Nothing when the copy engine cannot address the operands, or when neither registers nor
// the target's shared memory hold the smallest tile: the generic kernels can then. Weights that are bound once are laid
// out afresh (WeightLayout::kTiles64x128).
std::optional<GemmCut> cut_gemm(const DeviceContext& c, const GemmTuning& tuning, TensorId x,
                                std::initializer_list<TensorId> weights, const GemmNeeds& needs);

// Largest power of two that is at most `wanted` (at least 1), max and the number of K blocks: K splits that a cluster
// does.
uint32_t cluster_splits(int64_t wanted, int64_t k_blocks, uint32_t max);

TensorMapSpec x_map_spec(const DeviceContext& c, TensorId x, const GemmCut& cut);
// The weight as the cut wants it: a map, then pieces. The one that it does not use stands for something that is bound
// anyway.
void add_weight_map(KernelBuilder& b, std::string name, const DeviceContext& c, const GemmCut& cut, TensorId x,
                    TensorId w);
void add_weight_pieces(KernelBuilder& b, std::string name, const GemmCut& cut, TensorId w);

// The generic way: out[m, column + n] = the block-scaled product, fp32, any dims, rows of out `stride` values apart.
DeviceKernel generic_fp8_gemm(const DeviceContext& c, std::string name, const GemmOperands& operands, TensorId out,
                              int64_t stride, int64_t column);

}  // namespace megartp::ops
