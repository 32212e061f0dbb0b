// indexer_k on the GPU: a cluster of K splits for each M tile; dims that it cannot do go through z = fp32 products of
// the generic GEMM.
#include <algorithm>

#include "ops/common/device_gemm.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/indexer_device.h"
#include "ops/common/paged_cache.h"
#include "ops/indexer_k/indexer_k_abi.h"

namespace megartp::ops {
namespace {

// One N tile only, so few CTAs: each has all of its weights on their way at once (GLM-5.2: 6 blocks in each of 8
// splits).
constexpr GemmTuning kTuning{
    .tile_n = 128, .blocks = 1, .stages = 6, .in_flight = 4, .ctas_per_sm = 1, .max_tile_m = 32, .is_exact = true};
constexpr int64_t kDefaultSplits = 8;

struct Dims {
  int64_t m, k, dim, rope, k_blocks, positions, pages;
};
Dims dims_of(const DeviceContext& c) {
  const int64_t k = c.input_dims(kIndexerKX)[1];
  return {c.input_dims(kIndexerKX)[0],
          k,
          c.input_dims(kIndexerKWeight)[0],
          c.input_dims(kIndexerKCosSin)[1],
          ceil_div(k, kBlockK),
          c.input_dims(kIndexerKCosSin)[0],
          c.input_dims(kIndexerKCache)[0]};
}

void add_options(const DeviceContext& c, const Dims& d, KernelBuilder& b, bool is_generic) {
  const Attrs& attrs = c.op().attrs;
  b.u32("num_positions", d.positions).u32("num_slots", d.pages * kPageTokens);
  b.f32("eps", attrs.get_double("eps", 1e-6));
  add_indexer_row(b, attrs, d.dim, d.rope, false, is_generic);
}

GemmNeeds needs_of(const Dims& d, uint32_t splits) { return {ceil_div<int64_t>(d.k_blocks, splits), splits, 0, true}; }

class IndexerKDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "indexer_k"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const Dims d = dims_of(c);
    const uint32_t splits =
        cluster_splits(c.op().attrs.get_int("split_k", kDefaultSplits), d.k_blocks, kIndexerMaxSplits);
    const auto cut = cut_gemm(c, kTuning, c.input(kIndexerKX), {c.input(kIndexerKWeight)}, needs_of(d, splits));
    // Without splits there is no cluster, and the work is little.
    if (!cut || splits == 1 || d.dim != kIndexerDim || d.rope % kIndexerRopeUnit != 0) return generic(c, d);
    return std::vector<DeviceKernel>{fast(c, d, *cut, splits)};
  }

 private:
  static DeviceKernel fast(const DeviceContext& c, const Dims& d, const GemmCut& cut, uint32_t splits) {
    using Means = DeviceAccess::Means;
    const TensorId x = c.input(kIndexerKX);
    const TensorId w = c.input(kIndexerKWeight);
    KernelBuilder b(c.op().name, "ops/indexer_k/device/indexer_k.cuh",
                    fmt::format("indexer_k<{}, {}, $WAIT>", cut.text(), splits));
    b.input_map("x_map", x, x_map_spec(c, x, cut));
    add_weight_map(b, "w_map", c, cut, x, w);
    add_weight_pieces(b, "pieces", cut, w);
    b.early("w_scale", c.input(kIndexerKWeightScale)).input("x_scale", c.input(kIndexerKXScale));
    b.early("norm_w", c.input(kIndexerKNormW), Means::kReadOnly)
        .early("norm_b", c.input(kIndexerKNormB), Means::kReadOnly);
    b.early("positions", c.input(kIndexerKPositions)).early("cos_sin", c.input(kIndexerKCosSin));
    b.early("slot_mapping", c.input(kIndexerKSlotMapping)).output("cache", c.input(kIndexerKCache));
    b.u32("m", d.m).u32("k_blocks", d.k_blocks);
    add_options(c, d, b, false);
    b.cost(d.dim * d.k, d.m * (d.k + d.dim + 4), d.m * d.dim * d.k);
    return b
        .launch(splits, ceil_div<int64_t>(d.m, cut.tile_m), cut.num_threads(), cut.smem_bytes(needs_of(d, splits)),
                splits)
        .take();
  }

  static Result<std::vector<DeviceKernel>> generic(DeviceContext& c, const Dims& d) {
    const TensorId z = c.add_workspace("z", DType::kF32, {d.m, d.dim});
    const GemmOperands gemm{c.input(kIndexerKX), c.input(kIndexerKXScale), c.input(kIndexerKWeight),
                            c.input(kIndexerKWeightScale)};
    KernelBuilder b(c.op().name + ".finalize", "ops/indexer_k/device/indexer_k_generic.cuh",
                    "indexer_k_generic<$WAIT>");
    b.input("z", z).input("norm_w", c.input(kIndexerKNormW)).input("norm_b", c.input(kIndexerKNormB));
    b.input("positions", c.input(kIndexerKPositions)).input("cos_sin", c.input(kIndexerKCosSin));
    b.input("slot_mapping", c.input(kIndexerKSlotMapping)).output("cache", c.input(kIndexerKCache));
    b.u32("m", d.m);
    add_options(c, d, b, true);
    b.cost(4 * d.dim, d.m * (5 * d.dim + 4), d.m * d.dim * 9);
    b.launch(generic_grid(c, d.m, 1), 1, kGenericThreads).no_prologue();
    return std::vector<DeviceKernel>{generic_fp8_gemm(c, c.op().name + ".gemm", gemm, z, d.dim, 0), b.take()};
  }
};

}  // namespace

const DeviceFamily& indexer_k_device_family() {
  static const IndexerKDevice family;
  return family;
}

}  // namespace megartp::ops
