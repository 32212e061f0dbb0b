#include "ops/common/device_gemm.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "ops/common/gemm_tiling.h"

namespace megartp::ops {
namespace {

constexpr uint32_t kBlockBytes = 128;         // of one row, one K block
constexpr int64_t kTmaAlignment = 16;         // of strides
constexpr uint32_t kBarrierBytes = 256;       // GemmShape::scale_offset() - barrier_offset()
constexpr uint32_t kRingAlignment = 1024;     // of the ring within the dynamic shared memory
constexpr int64_t kSplitRowBytes = 512;       // 128 fp32 sums
constexpr int64_t kSplitRowsAlignment = 128;  // of the received rows; the room for their barrier too
constexpr uint32_t kMinTileM = 8;
constexpr uint32_t kLargeTileM = 64;
constexpr uint32_t kMinStages = 2;
constexpr uint32_t kMaxStages = 8;
constexpr int64_t kReservedBytes = 1024;  // of an SM's shared memory, for each CTA

// As GemmShape::kConsumers.
uint32_t consumer_warps(uint32_t tile_n, uint32_t tile_m, bool is_exact) {
  return tile_n == 128 && (tile_m > 32 || !is_exact) ? 8 : 4;
}

// Where the sums meet in a cluster, a warp keeps what it needs of its tokens (RoPE factors, gate partials) in registers
// from before the wait. ptxas for sm_90a (13.0) spills with three tokens of a tile of 128, whose sums alone take 128
// registers, and with more than eight otherwise.
bool rows_fit_registers(const GemmCut& cut, uint32_t splits) {
  const uint32_t tokens = ceil_div(cut.tile_m, splits * consumer_warps(cut.tile_n, cut.tile_m, cut.is_exact));
  return tokens <= (cut.tile_m == 128 ? 2U : 8U);
}

// In the end the sums lie where the ring was, a row of four more than the tile has (SplitRows::kStride, main_q.cuh).
bool ring_holds_sums(const GemmCut& cut, const GemmNeeds& needs) {
  const int64_t ring = int64_t{cut.stages} * cut.blocks * kBlockBytes * (cut.tile_n + cut.tile_m);
  return !needs.sums_in_ring || 4 * (int64_t{cut.tile_n} + 4) * cut.tile_m <= ring;
}

}  // namespace

uint32_t GemmCut::num_threads() const { return consumer_warps(tile_n, tile_m, is_exact) * 32 + 64; }

int64_t GemmCut::smem_bytes(const GemmNeeds& needs) const {
  const int64_t ring = int64_t{stages} * blocks * kBlockBytes * (tile_n + tile_m);
  const int64_t scales = 4 * needs.k_blocks * (tile_m + 1);
  const int64_t bytes = kRingAlignment + ring + kBarrierBytes;
  if (needs.splits == 0) return bytes + scales + needs.row_bytes * tile_m;
  // As SplitRows: the received rows of 128 fp32 sums from every split, and a barrier.
  const int64_t received = round_up<int64_t>(tile_m, needs.splits) * kSplitRowBytes;
  return bytes + round_up<int64_t>(scales, kSplitRowsAlignment) + received + kSplitRowsAlignment;
}

std::string GemmCut::text() const {
  return fmt::format("megartp::device::GemmShape<{}, {}, {}, {}, {}, {}, {}>", tile_n, tile_m, blocks, stages,
                     in_flight, is_tiled, is_exact);
}

uint32_t gemm_tile_m(int64_t m, uint32_t max_tile_m) {
  uint32_t tile = kMinTileM;
  while (tile < max_tile_m && tile < m) tile *= 2;
  return tile;
}

uint32_t cluster_splits(int64_t wanted, int64_t k_blocks, uint32_t max) {
  const int64_t most = std::max<int64_t>(1, std::min({wanted, k_blocks, int64_t{max}}));
  return std::bit_floor(static_cast<uint32_t>(most));
}

std::optional<GemmCut> cut_gemm(const DeviceContext& c, const GemmTuning& tuning, TensorId x,
                                std::initializer_list<TensorId> weights, const GemmNeeds& needs) {
  const int64_t m = c.tensor(x).dims[0];
  if (c.tensor(x).dims[1] % kTmaAlignment != 0) return std::nullopt;
  const bool is_tiled =
      std::ranges::all_of(weights, [&](TensorId w) { return c.tensor(w).storage == Storage::kWeight; });
  for (uint32_t tile_m = gemm_tile_m(m, tuning.max_tile_m); tile_m >= kMinTileM; tile_m /= 2) {
    GemmCut cut{tile_m == kLargeTileM ? std::max(tuning.tile_n, tuning.large_tile_n) : tuning.tile_n,
                tile_m,
                tile_m >= kLargeTileM ? 1 : tuning.blocks,
                0,
                0,
                is_tiled,
                tuning.is_exact};
    if (ceil_div<int64_t>(m, tile_m) > kMaxGridY) continue;
    if (needs.splits > 0 && !rows_fit_registers(cut, needs.splits)) continue;
    const uint32_t finer = tuning.blocks / cut.blocks;  // stages for one of the tuning's
    // Where each CTA of large tiles has an SM, it may have all of it.
    int64_t num_ctas = 0;
    for (const TensorId w : weights) num_ctas += ceil_div<int64_t>(c.tensor(w).dims[0], cut.tile_n);
    num_ctas *= ceil_div<int64_t>(m, tile_m) * std::max(needs.k_splits, int64_t{needs.splits});
    const uint32_t most_ctas = tile_m >= kLargeTileM && num_ctas <= c.target().num_sms ? 1 : tuning.ctas_per_sm;
    for (uint32_t ctas = most_ctas; ctas > 0; --ctas) {
      const int64_t room = (c.target().smem_per_cta + kReservedBytes) / ctas - kReservedBytes;
      for (cut.stages = std::min(tuning.stages * finer, kMaxStages); cut.stages >= kMinStages; --cut.stages) {
        cut.in_flight = std::min(tuning.in_flight * finer, cut.stages);
        if (ring_holds_sums(cut, needs) && cut.smem_bytes(needs) <= room) return cut;
      }
    }
  }
  return std::nullopt;
}

TensorMapSpec x_map_spec(const DeviceContext& c, TensorId x, const GemmCut& cut) {
  TensorMapSpec map;
  const auto& dims = c.tensor(x).dims;
  map.dims = {static_cast<uint64_t>(dims[1]), static_cast<uint64_t>(dims[0])};
  map.strides = {static_cast<uint64_t>(dims[1])};
  map.box = {kBlockBytes, cut.tile_m};
  return map;
}

void add_weight_map(KernelBuilder& b, std::string name, const DeviceContext& c, const GemmCut& cut, TensorId x,
                    TensorId w) {
  if (cut.is_tiled) {
    b.unused_map(std::move(name), x, x_map_spec(c, x, cut));
    return;
  }
  TensorMapSpec map = x_map_spec(c, w, cut);
  map.box[1] = cut.tile_n;
  b.early_map(std::move(name), w, map);
}

void add_weight_pieces(KernelBuilder& b, std::string name, const GemmCut& cut, TensorId w) {
  if (cut.is_tiled) {
    b.early(std::move(name), w, DeviceAccess::Means::kTma, WeightLayout::kTiles64x128);
  } else {
    b.unused(std::move(name), w);
  }
}

DeviceKernel generic_fp8_gemm(const DeviceContext& c, std::string name, const GemmOperands& operands, TensorId out,
                              int64_t stride, int64_t column) {
  const int64_t m = c.tensor(operands.x).dims[0];
  const int64_t k = c.tensor(operands.x).dims[1];
  const int64_t n = c.tensor(operands.w).dims[0];
  return KernelBuilder(std::move(name), "ops/common/device/generic.cuh", "fp8_gemm_generic<$WAIT>")
      .input("x", operands.x)
      .input("x_scale", operands.x_scale)
      .input("w", operands.w)
      .input("w_scale", operands.w_scale)
      .output("out", out)
      .u32("m", m)
      .u32("n", n)
      .u32("k", k)
      .u32("stride", stride)
      .u32("column", column)
      .launch(generic_grid(c, m * n, kGenericWarps), 1, kGenericThreads)
      .cost(n * k, m * (k + 4 * n), m * n * k)
      .no_prologue()
      .take();
}

Status check_device_dims(const DeviceContext& c) {
  for (const auto* list : {&c.op().inputs, &c.op().outputs})
    for (const TensorId id : *list)
      for (const int64_t d : c.tensor(id).dims)
        if (d < 1 || d > kMaxDeviceDim)
          return make_error(
              ErrorCode::kUnsupported,
              fmt::format("op '{}' ({}): tensor '{}' has shape {}; the device code takes dims up to {}", c.op().name,
                          c.op().kind, c.tensor(id).name, to_string(c.tensor(id).dims), kMaxDeviceDim));
  return {};
}

}  // namespace megartp::ops
