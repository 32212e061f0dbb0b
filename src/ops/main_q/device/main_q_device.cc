// main_q on the GPU: a GEMM without K splits that rotates and stores by head; dims that it cannot do go through z =
// fp32 products of the generic GEMM.
#include "ops/common/device_gemm.h"
#include "ops/common/gemm_tiling.h"
#include "ops/main_q/main_q_abi.h"

namespace megartp::ops {
namespace {

// Tiles of 128 rows: all CTAs then find room beside those of indexer_q, where the last of 256 tiles of 64 waited for
// them (cmp 33.2 instead of 35.5 us; docs/performance.md, "Where the time goes").
constexpr GemmTuning kTuning{
    .tile_n = 128, .blocks = 1, .stages = 6, .in_flight = 2, .ctas_per_sm = 2, .large_tile_n = 128};

struct Dims {
  int64_t m, k, heads, nope, rope, kv_lora, k_blocks;
  int64_t n() const { return heads * (nope + rope); }
};
Dims dims_of(const DeviceContext& c) {
  const Attrs& attrs = c.op().attrs;
  const int64_t k = c.input_dims(kMainQX)[1];
  return {c.input_dims(kMainQX)[0],  k,
          attrs.get_int("heads", 0), attrs.get_int("nope", 0),
          attrs.get_int("rope", 0),  attrs.get_int("kv_lora", 0),
          ceil_div(k, kBlockK)};
}

// Each token's cosines and sines lie in shared memory.
GemmNeeds needs_of(const Dims& d) { return {d.k_blocks, 0, 4 * d.rope, true}; }

void add_outputs(const DeviceContext& c, KernelBuilder& b) {
  b.output("q_nope", c.output(0)).output("q_out", c.output(1));
}

class MainQDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "main_q"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const Dims d = dims_of(c);
    const auto cut = cut_gemm(c, kTuning, c.input(kMainQX), {c.input(kMainQWeight)}, needs_of(d));
    // Values are stored in pairs.
    if (!cut || d.kv_lora % 2 != 0) return generic(c, d);
    return std::vector<DeviceKernel>{fast(c, d, *cut)};
  }

 private:
  static DeviceKernel fast(const DeviceContext& c, const Dims& d, const GemmCut& cut) {
    const TensorId x = c.input(kMainQX);
    const TensorId w = c.input(kMainQWeight);
    KernelBuilder b(c.op().name, "ops/main_q/device/main_q.cuh", fmt::format("main_q<{}, $WAIT>", cut.text()));
    b.input_map("x_map", x, x_map_spec(c, x, cut));
    add_weight_map(b, "w_map", c, cut, x, w);
    add_weight_pieces(b, "pieces", cut, w);
    b.early("w_scale", c.input(kMainQWeightScale)).input("x_scale", c.input(kMainQXScale));
    b.early("positions", c.input(kMainQPositions)).early("cos_sin", c.input(kMainQCosSin));
    add_outputs(c, b);
    b.u32("m", d.m).u32("k_blocks", d.k_blocks).u32("n", d.n()).u32("heads", d.heads);
    b.u32("nope", d.nope).u32("rope", d.rope).u32("kv_lora", d.kv_lora);
    b.cost(d.n() * d.k, d.m * (d.k + 2 * d.n()), d.m * d.n() * d.k);
    return b
        .launch(ceil_div<int64_t>(d.n(), cut.tile_n), ceil_div<int64_t>(d.m, cut.tile_m), cut.num_threads(),
                cut.smem_bytes(needs_of(d)))
        .take();
  }

  static Result<std::vector<DeviceKernel>> generic(DeviceContext& c, const Dims& d) {
    const TensorId z = c.add_workspace("z", DType::kF32, {d.m, d.n()});
    const GemmOperands gemm{c.input(kMainQX), c.input(kMainQXScale), c.input(kMainQWeight), c.input(kMainQWeightScale)};
    KernelBuilder b(c.op().name + ".finalize", "ops/main_q/device/main_q_generic.cuh", "main_q_generic<$WAIT>");
    b.input("z", z).input("positions", c.input(kMainQPositions)).input("cos_sin", c.input(kMainQCosSin));
    add_outputs(c, b);
    b.u32("m", d.m).u32("heads", d.heads).u32("nope", d.nope).u32("rope", d.rope).u32("kv_lora", d.kv_lora);
    b.cost(0, d.m * 6 * d.n(), d.m * d.n() * 2);
    b.launch(generic_grid(c, d.m * d.n() / 2, kGenericThreads), 1, kGenericThreads).no_prologue();
    return std::vector<DeviceKernel>{generic_fp8_gemm(c, c.op().name + ".gemm", gemm, z, d.n(), 0), b.take()};
  }
};

}  // namespace

const DeviceFamily& main_q_device_family() {
  static const MainQDevice family;
  return family;
}

}  // namespace megartp::ops
