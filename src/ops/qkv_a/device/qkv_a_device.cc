// qkv_a on the GPU: a GEMM that leaves one partial a K split, and a finalizer of two CTAs a row; dims that they cannot
// do go through z = fp32 products of the generic GEMM.
#include <algorithm>
#include <bit>

#include "ops/common/device_gemm.h"
#include "ops/common/gemm_tiling.h"
#include "ops/common/paged_cache.h"
#include "ops/qkv_a/qkv_a_abi.h"

namespace megartp::ops {
namespace {

// Three stages of 16 KiB of weights, one of them on its way: more only delays the activations of kernels beside this
// one.
constexpr GemmTuning kTuning{.tile_n = 64,
                             .blocks = 2,
                             .stages = 3,
                             .in_flight = 1,
                             .ctas_per_sm = 2,
                             .max_tile_m = 64,
                             .large_tile_n = 128,
                             .is_exact = true};
constexpr int64_t kVector = 8;                // values of a finalizer thread
constexpr int64_t kMaxFinalizeThreads = 512;  // more leave too few registers for the loads in flight

struct Dims {
  int64_t m, k, n_q, n_kv, rope, kv_lora, k_blocks, groups;
};
Dims dims_of(const DeviceContext& c) {
  Dims d{};
  d.m = c.input_dims(kQkvAX)[0];
  d.k = c.input_dims(kQkvAX)[1];
  d.n_q = c.input_dims(kQkvAQProj)[0];
  d.n_kv = c.input_dims(kQkvAKvProj)[0];
  d.rope = c.input_dims(kQkvACosSin)[1];
  d.kv_lora = d.n_kv - d.rope;
  d.k_blocks = ceil_div(d.k, kBlockK);
  d.groups = ceil_div(d.kv_lora, kBlockK);
  return d;
}

int64_t splits_of(const DeviceContext& c, const Dims& d) {
  const int64_t tiles = ceil_div<int64_t>(d.n_q, kBlockN) + ceil_div<int64_t>(d.n_kv, kBlockN);
  return gemm_splits(c.op().attrs.get_int("split_k", 0), c.target().num_sms, tiles, d.k);
}

GemmNeeds needs_of(const Dims& d, int64_t splits) { return {ceil_div(d.k_blocks, splits), 0, 0, false, splits}; }

// 0: the fast finalizer cannot do these widths.
int64_t finalize_threads(const Dims& d) {
  const int64_t head = d.kv_lora + 4 * d.groups;  // bytes of a record before the key
  if (d.n_q % kVector != 0 || d.kv_lora % kVector != 0 || d.rope % kVector != 0 || head % 16 != 0) return 0;
  const int64_t pieces = ceil_div(std::max(d.n_q, d.n_kv), kVector);
  if (pieces > kMaxFinalizeThreads) return 0;
  return std::max<int64_t>(64, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pieces))));
}

class QkvADevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "qkv_a"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const Dims d = dims_of(c);
    const int64_t splits = splits_of(c, d);
    const auto cut =
        cut_gemm(c, kTuning, c.input(kQkvAX), {c.input(kQkvAQProj), c.input(kQkvAKvProj)}, needs_of(d, splits));
    if (!cut || finalize_threads(d) == 0) return generic(c, d);
    const TensorId partial = c.add_workspace("partial", DType::kF32, {splits, d.m, d.n_q + d.n_kv});
    return std::vector<DeviceKernel>{gemm(c, d, *cut, splits, partial), finalize(c, d, splits, partial)};
  }

 private:
  static DeviceKernel gemm(const DeviceContext& c, const Dims& d, const GemmCut& cut, int64_t splits,
                           TensorId partial) {
    const TensorId x = c.input(kQkvAX);
    const TensorId q = c.input(kQkvAQProj);
    const TensorId kv = c.input(kQkvAKvProj);
    KernelBuilder b(c.op().name + ".gemm", "ops/qkv_a/device/qkv_a.cuh",
                    fmt::format("qkv_a_gemm<{}, $WAIT>", cut.text()));
    b.input_map("x_map", x, x_map_spec(c, x, cut));
    add_weight_map(b, "q_map", c, cut, x, q);
    add_weight_map(b, "kv_map", c, cut, x, kv);
    add_weight_pieces(b, "q_pieces", cut, q);
    add_weight_pieces(b, "kv_pieces", cut, kv);
    b.early("q_scale", c.input(kQkvAQProjScale)).early("kv_scale", c.input(kQkvAKvProjScale));
    b.input("x_scale", c.input(kQkvAXScale)).output("partial", partial);
    b.u32("m", d.m).u32("k_blocks", d.k_blocks).u32("n_q", d.n_q).u32("n_kv", d.n_kv).u32("splits", splits);
    const int64_t n = d.n_q + d.n_kv;
    const int64_t tiles = ceil_div<int64_t>(d.n_q, cut.tile_n) + ceil_div<int64_t>(d.n_kv, cut.tile_n);
    b.cost(n * d.k, d.m * (d.k + 4 * n * splits), d.m * n * d.k);
    return b
        .launch(tiles * splits, ceil_div<int64_t>(d.m, cut.tile_m), cut.num_threads(),
                cut.smem_bytes(needs_of(d, splits)))
        .take();
  }

  static void add_outputs(const DeviceContext& c, KernelBuilder& b) {
    b.output("cache", c.input(kQkvACache))
        .output("q", c.output(0))
        .output("q_scale", c.output(1))
        .output("kv", c.output(2));
  }
  static void add_options(const DeviceContext& c, const Dims& d, int64_t splits, KernelBuilder& b) {
    const Attrs& attrs = c.op().attrs;
    b.u32("n_q", d.n_q).u32("kv_lora", d.kv_lora).u32("rope", d.rope);
    b.f32("eps", attrs.get_double("eps", 1e-5));
    b.u32("pow2_scale", attrs.get_bool("pow2_scale", false) ? 1 : 0);
    b.u32("mla_pow2_scale", attrs.get_bool("mla_pow2_scale", true) ? 1 : 0);
    const int64_t n = d.n_q + d.n_kv;
    const int64_t row_bytes = 4 * splits * n + d.n_q + 2 * d.n_kv + mla_record_bytes(d.kv_lora, d.rope);
    b.cost(2 * (d.n_q + d.kv_lora), d.m * row_bytes, d.m * n * (splits + 4));
  }

  static DeviceKernel finalize(const DeviceContext& c, const Dims& d, int64_t splits, TensorId partial) {
    using Means = DeviceAccess::Means;
    const int64_t threads = finalize_threads(d);
    KernelBuilder b(
        c.op().name + ".finalize", "ops/qkv_a/device/qkv_a.cuh",
        fmt::format("qkv_a_finalize<{}, {}, $WAIT>", threads, std::bit_ceil(static_cast<uint64_t>(splits))));
    b.input("partial", partial);
    b.early("q_norm", c.input(kQkvAQNorm), Means::kReadOnly).early("kv_norm", c.input(kQkvAKvNorm), Means::kReadOnly);
    b.early("positions", c.input(kQkvAPositions)).early("cos_sin", c.input(kQkvACosSin));
    b.early("slot_mapping", c.input(kQkvASlotMapping));
    add_outputs(c, b);
    b.u32("m", d.m).u32("splits", splits);
    add_options(c, d, splits, b);
    return b.launch(d.m, 2, threads).take();
  }

  static Result<std::vector<DeviceKernel>> generic(DeviceContext& c, const Dims& d) {
    const int64_t n = d.n_q + d.n_kv;
    const TensorId z = c.add_workspace("z", DType::kF32, {d.m, n});
    const GemmOperands q{c.input(kQkvAX), c.input(kQkvAXScale), c.input(kQkvAQProj), c.input(kQkvAQProjScale)};
    const GemmOperands kv{c.input(kQkvAX), c.input(kQkvAXScale), c.input(kQkvAKvProj), c.input(kQkvAKvProjScale)};
    KernelBuilder b(c.op().name + ".finalize", "ops/qkv_a/device/qkv_a_generic.cuh", "qkv_a_generic<$WAIT>");
    b.input("z", z).input("q_norm", c.input(kQkvAQNorm)).input("kv_norm", c.input(kQkvAKvNorm));
    b.input("positions", c.input(kQkvAPositions)).input("cos_sin", c.input(kQkvACosSin));
    b.input("slot_mapping", c.input(kQkvASlotMapping));
    add_outputs(c, b);
    b.u32("m", d.m);
    add_options(c, d, 1, b);
    b.launch(generic_grid(c, d.m, 1), 1, kGenericThreads).no_prologue();
    return std::vector<DeviceKernel>{generic_fp8_gemm(c, c.op().name + ".gemm_q", q, z, n, 0),
                                     generic_fp8_gemm(c, c.op().name + ".gemm_kv", kv, z, n, d.n_q), b.take()};
  }
};

}  // namespace

const DeviceFamily& qkv_a_device_family() {
  static const QkvADevice family;
  return family;
}

}  // namespace megartp::ops
