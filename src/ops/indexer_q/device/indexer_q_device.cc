// indexer_q on the GPU: a cluster of K splits for each head and M tile; dims that it cannot do go through z = fp32
// products of the generic GEMM.
#include <algorithm>

#include "ops/common/device_gemm.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/indexer_device.h"
#include "ops/indexer_q/indexer_q_abi.h"

namespace megartp::ops {
namespace {

constexpr GemmTuning kTuning{
    .tile_n = 128, .blocks = 1, .stages = 4, .in_flight = 1, .ctas_per_sm = 2, .max_tile_m = 32, .is_exact = true};
constexpr int64_t kDefaultSplits = 4;
constexpr int64_t kGateLanes = 32;    // slices of the gate that a warp loads at once
constexpr int64_t kMaxGateLoads = 4;  // of a lane and token, in registers

struct Dims {
  int64_t m, k, heads, dim, rope, slices, positions, k_blocks;
};
Dims dims_of(const DeviceContext& c) {
  const int64_t k = c.input_dims(kIndexerQX)[1];
  return {c.input_dims(kIndexerQX)[0],
          k,
          c.output_dims(0)[1],
          c.output_dims(0)[2],
          c.input_dims(kIndexerQCosSin)[1],
          c.input_dims(kIndexerQGatePartials)[0],
          c.input_dims(kIndexerQCosSin)[0],
          ceil_div(k, kBlockK)};
}

void add_outputs(const DeviceContext& c, KernelBuilder& b) {
  b.output("q", c.output(0)).output("q_scale", c.output(1)).output("weights", c.output(2)).output("gate", c.output(3));
}
void add_options(const DeviceContext& c, const Dims& d, KernelBuilder& b, bool is_generic) {
  const Attrs& attrs = c.op().attrs;
  b.f32("score_scale", attrs.get_double("score_scale", 0));
  add_indexer_row(b, attrs, d.dim, d.rope, true, is_generic);
}

GemmNeeds needs_of(const Dims& d, uint32_t splits) { return {ceil_div<int64_t>(d.k_blocks, splits), splits, 0, true}; }

class IndexerQDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "indexer_q"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const Dims d = dims_of(c);
    const uint32_t splits =
        cluster_splits(c.op().attrs.get_int("split_k", kDefaultSplits), d.k_blocks, kIndexerMaxSplits);
    const auto cut = cut_gemm(c, kTuning, c.input(kIndexerQX), {c.input(kIndexerQWeight)}, needs_of(d, splits));
    // Without splits there is no cluster.
    const bool fits =
        splits > 1 && d.dim == kIndexerDim && d.rope % kIndexerRopeUnit == 0 && d.slices <= kGateLanes * kMaxGateLoads;
    if (!cut || !fits) return generic(c, d);
    return std::vector<DeviceKernel>{fast(c, d, *cut, splits)};
  }

 private:
  static DeviceKernel fast(const DeviceContext& c, const Dims& d, const GemmCut& cut, uint32_t splits) {
    const TensorId x = c.input(kIndexerQX);
    const TensorId w = c.input(kIndexerQWeight);
    KernelBuilder b(c.op().name, "ops/indexer_q/device/indexer_q.cuh",
                    fmt::format("indexer_q<{}, {}, {}, $WAIT>", cut.text(), splits, ceil_div(d.slices, kGateLanes)));
    b.input_map("x_map", x, x_map_spec(c, x, cut));
    add_weight_map(b, "w_map", c, cut, x, w);
    add_weight_pieces(b, "pieces", cut, w);
    b.early("w_scale", c.input(kIndexerQWeightScale)).input("x_scale", c.input(kIndexerQXScale));
    b.input("gate_partials", c.input(kIndexerQGatePartials));
    b.early("positions", c.input(kIndexerQPositions)).early("cos_sin", c.input(kIndexerQCosSin));
    add_outputs(c, b);
    b.u32("m", d.m).u32("k_blocks", d.k_blocks).u32("heads", d.heads).u32("slices", d.slices);
    add_options(c, d, b, false);
    const int64_t n = d.heads * d.dim;
    b.cost(n * d.k, d.m * (d.k + n + 4 * d.heads * (d.slices + 3)), d.m * n * d.k);
    return b
        .launch(d.heads * splits, ceil_div<int64_t>(d.m, cut.tile_m), cut.num_threads(),
                cut.smem_bytes(needs_of(d, splits)), splits)
        .triggers_late()
        .take();
  }

  static Result<std::vector<DeviceKernel>> generic(DeviceContext& c, const Dims& d) {
    const int64_t n = d.heads * d.dim;
    const TensorId z = c.add_workspace("z", DType::kF32, {d.m, n});
    const GemmOperands gemm{c.input(kIndexerQX), c.input(kIndexerQXScale), c.input(kIndexerQWeight),
                            c.input(kIndexerQWeightScale)};
    KernelBuilder b(c.op().name + ".finalize", "ops/indexer_q/device/indexer_q_generic.cuh",
                    "indexer_q_generic<$WAIT>");
    b.input("z", z).input("gate_partials", c.input(kIndexerQGatePartials));
    b.input("positions", c.input(kIndexerQPositions)).input("cos_sin", c.input(kIndexerQCosSin));
    add_outputs(c, b);
    b.u32("m", d.m).u32("heads", d.heads).u32("slices", d.slices).u32("num_positions", d.positions);
    add_options(c, d, b, true);
    b.cost(0, d.m * (5 * n + 4 * d.heads * (d.slices + 3)), d.m * n * 5);
    b.launch(generic_grid(c, d.m * d.heads, 1), 1, kGenericThreads).no_prologue();
    return std::vector<DeviceKernel>{generic_fp8_gemm(c, c.op().name + ".gemm", gemm, z, n, 0), b.take()};
  }
};

}  // namespace

const DeviceFamily& indexer_q_device_family() {
  static const IndexerQDevice family;
  return family;
}

}  // namespace megartp::ops
