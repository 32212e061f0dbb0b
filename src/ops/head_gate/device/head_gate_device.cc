// head_gate on the GPU: a CTA for each 128 hidden columns and 16 rows, a warp for each 8 heads.
#include "ops/common/gemm_tiling.h"
#include "ops/common/kernel_builder.h"

namespace megartp::ops {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kWarpHeads = 8;
constexpr int64_t kMaxHeads = 256;  // 1024 threads
constexpr int64_t kVector = 8;      // values of 16 bytes

class HeadGateDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "head_gate"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const int64_t m = c.input_dims(0)[0];
    const int64_t hidden = c.input_dims(0)[1];
    const int64_t heads = c.input_dims(1)[0];
    const int64_t slices = ceil_div(hidden, kBlockK);
    const bool is_fast = hidden % kVector == 0 && heads <= kMaxHeads && ceil_div(m, kTileRows) <= kMaxGridY;
    const int64_t threads = 32 * ceil_div(heads, kWarpHeads);
    KernelBuilder b =
        is_fast ? KernelBuilder(c.op().name, "ops/head_gate/device/head_gate.cuh",
                                fmt::format("head_gate<{}, $WAIT>", threads))
                : KernelBuilder(c.op().name, "ops/head_gate/device/head_gate_generic.cuh", "head_gate_generic<$WAIT>");
    b.input("y", c.input(0));
    if (is_fast) {
      b.early("w", c.input(1), DeviceAccess::Means::kReadOnly);
      b.launch(slices, ceil_div(m, kTileRows), threads);
    } else {
      b.input("w", c.input(1));
      b.launch(generic_grid(c, slices * m * heads, kGenericWarps), 1, kGenericThreads).no_prologue();
    }
    b.output("partials", c.output(0)).u32("m", m).u32("heads", heads).u32("hidden", hidden);
    b.cost(2 * heads * hidden, m * (2 * hidden + 4 * heads * slices), m * heads * hidden);
    return std::vector<DeviceKernel>{b.take()};
  }
};

}  // namespace

const DeviceFamily& head_gate_device_family() {
  static const HeadGateDevice family;
  return family;
}

}  // namespace megartp::ops
