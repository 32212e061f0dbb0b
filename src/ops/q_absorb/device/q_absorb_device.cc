// q_absorb on the GPU: a CTA for each head and 128 columns, with its weights in registers for all rows that it does.
#include <algorithm>

#include "ops/common/gemm_tiling.h"
#include "ops/common/kernel_builder.h"
#include "ops/q_absorb/device/q_absorb_layout.h"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::ops {
namespace {

constexpr int64_t kThreads = 128;
constexpr int64_t kTileRows = 16;
constexpr int64_t kCtasPerSm = 3;  // as the kernel's launch bounds have it

class QAbsorbDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "q_absorb"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const auto& q = c.input_dims(kQAbsorbQNope);
    const int64_t m = q[0];
    const int64_t heads = q[1];
    const int64_t nope = q[2];
    const int64_t kv_lora = c.input_dims(kQAbsorbKvB)[1];
    const int64_t v = c.op().attrs.get_int("v", 0);
    const int64_t rope = c.input_dims(kQAbsorbQOut)[2] - kv_lora;
    const int64_t steps = ceil_div<int64_t>(nope, device::kAbsorbStepDepth);
    const bool is_fast = nope % 4 == 0 && kv_lora % 16 == 0 && rope % 8 == 0 && steps <= device::kAbsorbMaxSteps;
    const int64_t tiles = heads * ceil_div(kv_lora, kBlockN);
    // Rows are shared out only where heads and columns alone leave SMs without a CTA: every group reads the weights
    // anew.
    const int64_t row_tiles = ceil_div(m, kTileRows);
    const int64_t groups =
        std::clamp<int64_t>(kCtasPerSm * c.target().num_sms / tiles, 1, std::min(row_tiles, kMaxGridY));
    KernelBuilder b =
        is_fast ? KernelBuilder(c.op().name, "ops/q_absorb/device/q_absorb.cuh",
                                fmt::format("q_absorb<{}, {}, $WAIT>", steps, row_tiles > groups))
                : KernelBuilder(c.op().name, "ops/q_absorb/device/q_absorb_generic.cuh", "q_absorb_generic<$WAIT>");
    b.input("q_nope", c.input(kQAbsorbQNope));
    if (is_fast) {
      b.early("kv_b", c.input(kQAbsorbKvB), DeviceAccess::Means::kReadOnly);
      b.early("kv_b_scale", c.input(kQAbsorbKvBScale));
      b.launch(tiles, groups, kThreads);
    } else {
      b.input("kv_b", c.input(kQAbsorbKvB)).input("kv_b_scale", c.input(kQAbsorbKvBScale));
      b.launch(generic_grid(c, m * heads * kv_lora, kGenericThreads), 1, kGenericThreads).no_prologue();
    }
    b.output("q_out", c.input(kQAbsorbQOut));
    b.u32("m", m).u32("heads", heads).u32("nope", nope).u32("v", v).u32("kv_lora", kv_lora).u32("rope", rope);
    b.cost(heads * nope * kv_lora, 2 * m * heads * (nope + kv_lora), m * heads * nope * kv_lora);
    return std::vector<DeviceKernel>{b.take()};
  }
};

}  // namespace

const DeviceFamily& q_absorb_device_family() {
  static const QAbsorbDevice family;
  return family;
}

}  // namespace megartp::ops
