// add on the GPU: one generic kernel.
#include "ops/common/kernel_builder.h"

namespace megartp::ops {
namespace {

class AddDevice final : public DeviceFamily {
 public:
  std::string_view kind() const override { return "add"; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    MEGARTP_TRY(check_device_dims(c));
    const int64_t m = c.input_dims(0)[0];
    const int64_t n = c.input_dims(0)[1];
    return std::vector<DeviceKernel>{KernelBuilder(c.op().name, "ops/add/device/add_generic.cuh", "add_generic<$WAIT>")
                                         .input("a", c.input(0))
                                         .input("b", c.input(1))
                                         .output("out", c.output(0))
                                         .u32("m", m)
                                         .u32("n", n)
                                         .launch(generic_grid(c, m * n, kGenericThreads), 1, kGenericThreads)
                                         .cost(0, 6 * m * n, m * n)
                                         .no_prologue()
                                         .take()};
  }
};

}  // namespace

const DeviceFamily& add_device_family() {
  static const AddDevice family;
  return family;
}

}  // namespace megartp::ops
