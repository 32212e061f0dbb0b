// rmsnorm on the GPU: one generic kernel.
#include "ops/common/kernel_builder.h"

namespace megartp::ops {
namespace {

class RmsnormDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "rmsnorm"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const int64_t m = c.input_dims(0)[0];
    const int64_t n = c.input_dims(0)[1];
    return std::vector<DeviceKernel>{
        KernelBuilder(c.op().name, "ops/rmsnorm/device/rmsnorm_generic.cuh", "rmsnorm_generic<$WAIT>")
            .input("x", c.input(0))
            .input("w", c.input(1))
            .output("out", c.output(0))
            .u32("m", m)
            .u32("n", n)
            .f32("eps", c.op().attrs.get_double("eps", 1e-5))
            .launch(generic_grid(c, m, 1), 1, kGenericThreads)
            .cost(2 * n, 4 * m * n, 3 * m * n)
            .no_prologue()
            .take()};
  }
};

}  // namespace

const DeviceFamily& rmsnorm_device_family() {
  static const RmsnormDevice family;
  return family;
}

}  // namespace megartp::ops
