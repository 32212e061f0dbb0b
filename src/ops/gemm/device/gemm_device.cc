// gemm on the GPU: one generic kernel.
#include "ops/common/kernel_builder.h"

namespace megartp::ops {
namespace {

class GemmDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "gemm"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const int64_t m = c.input_dims(0)[0];
    const int64_t k = c.input_dims(0)[1];
    const int64_t n = c.input_dims(1)[0];
    return std::vector<DeviceKernel>{
        KernelBuilder(c.op().name, "ops/gemm/device/gemm_generic.cuh", "gemm_generic<$WAIT>")
            .input("x", c.input(0))
            .input("w", c.input(1))
            .output("out", c.output(0))
            .u32("m", m)
            .u32("n", n)
            .u32("k", k)
            .launch(generic_grid(c, m * n, kGenericWarps), 1, kGenericThreads)
            .cost(2 * n * k, 2 * m * (k + n), m * n * k)
            .no_prologue()
            .take()};
  }
};

}  // namespace

const DeviceFamily& gemm_device_family() {
  static const GemmDevice family;
  return family;
}

}  // namespace megartp::ops
