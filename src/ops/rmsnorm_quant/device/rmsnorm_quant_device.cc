// add_rmsnorm_quant on the GPU: a CTA for each row, the row in registers; rows that do not fit, or that are not made of
// 16-byte pieces, by the generic kernel.
#include <algorithm>

#include "ops/common/gemm_tiling.h"
#include "ops/common/kernel_builder.h"

namespace megartp::ops {
namespace {

constexpr int64_t kVector = 8;  // values of 16 bytes
// One piece a thread while the row has at most 1024 of them: GLM-5.2's 768 threads of one piece are faster than 384 of
// two. More pieces need more registers, so then a CTA has at most 512 threads.
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxThreadsOfSeveral = 512;
constexpr int64_t kMaxVectors = 4;

struct RowCut {
  int64_t threads = 0;
  int64_t vectors = 0;  // pieces a thread
};
// vectors = 0: the row does not fit.
RowCut cut_row(int64_t cols) {
  const int64_t pieces = cols / kVector;
  if (cols % kVector != 0) return {};
  if (pieces <= kMaxThreads) return {round_up<int64_t>(pieces, 32), 1};
  const int64_t vectors = ceil_div(pieces, kMaxThreadsOfSeveral);
  if (vectors > kMaxVectors) return {};
  return {round_up<int64_t>(ceil_div(pieces, vectors), 32), vectors};
}

class RmsnormQuantDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "add_rmsnorm_quant"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const RowCut cut = cut_row(c.input_dims(0)[1]);
    return std::vector<DeviceKernel>{cut.vectors > 0 ? fast(c, cut) : generic(c)};
  }

 private:
  static void add_outputs(const DeviceContext& c, KernelBuilder& b) {
    b.output("residual", c.output(0)).output("y", c.output(1)).output("q", c.output(2)).output("scale", c.output(3));
  }
  static void add_words(const DeviceContext& c, KernelBuilder& b) {
    const int64_t m = c.input_dims(0)[0];
    const int64_t cols = c.input_dims(0)[1];
    b.u32("cols", cols)
        .f32("eps", c.op().attrs.get_double("eps", 1e-5))
        .u32("pow2_scale", c.op().attrs.get_bool("pow2_scale", false) ? 1 : 0)
        .cost(2 * cols, m * (9 * cols + 4 * ceil_div(cols, kBlockK)), 6 * m * cols);
  }

  static DeviceKernel fast(const DeviceContext& c, const RowCut& cut) {
    KernelBuilder b(c.op().name, "ops/rmsnorm_quant/device/rmsnorm_quant.cuh",
                    fmt::format("rmsnorm_quant<{}, {}, $WAIT>", cut.threads, cut.vectors));
    b.input("x", c.input(0)).input("residual_in", c.input(1));
    b.early("w", c.input(2), DeviceAccess::Means::kReadOnly);
    add_outputs(c, b);
    add_words(c, b);
    return b.launch(c.input_dims(0)[0], 1, cut.threads).take();
  }

  static DeviceKernel generic(const DeviceContext& c) {
    const int64_t m = c.input_dims(0)[0];
    KernelBuilder b(c.op().name, "ops/rmsnorm_quant/device/rmsnorm_quant_generic.cuh", "rmsnorm_quant_generic<$WAIT>");
    b.input("x", c.input(0)).input("residual_in", c.input(1)).input("w", c.input(2));
    add_outputs(c, b);
    b.u32("m", m);
    add_words(c, b);
    return b.launch(generic_grid(c, m, 1), 1, kGenericThreads).no_prologue().take();
  }
};

}  // namespace

const DeviceFamily& rmsnorm_quant_device_family() {
  static const RmsnormQuantDevice family;
  return family;
}

}  // namespace megartp::ops
