// The shapes that the tests of the device families go through: whole layers at many M and KV, and single ops with
// ragged dims.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/device_kernel.h"
#include "ops/op_family.h"

namespace megartp::test {

// A graph with its sizes.
struct DeviceCase {
  std::string name;  // "glm m=16 kv=8192"
  OpGraph graph;
  ShapeEnv shapes;
};

// GLM-5.2 and DeepSeek-V3.2, one layer with an indexer: M 1 to 256, KV 2k to 128k, one and several requests.
std::vector<DeviceCase> layer_cases();
// One op each, with the dims of the families' own tests: tiny, unaligned, too wide.
std::vector<DeviceCase> ragged_cases();

// What a launch layer gives a family, without a device.
class TestDeviceContext final : public DeviceContext {
 public:
  // Keeps references: graph and shapes must outlive it.
  TestDeviceContext(const OpGraph& graph, const ShapeEnv& shapes, const OpInfo& op, DeviceTarget target = {});
  const OpInfo& op() const override { return op_; }
  const ConcreteTensor& tensor(TensorId id) const override { return tensors_.at(id); }
  const ShapeEnv& shapes() const override { return shapes_; }
  const DeviceTarget& target() const override { return target_; }
  TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool zeroed) override;
  TensorId add_constant(std::string_view name, std::vector<uint32_t> words) override;

  size_t num_tensors() const { return tensors_.size(); }
  const std::vector<uint32_t>& constant() const { return constant_; }  // the last one

 private:
  const OpInfo& op_;
  const ShapeEnv& shapes_;
  DeviceTarget target_;
  std::vector<ConcreteTensor> tensors_;
  std::vector<uint32_t> constant_;
};

// The kernels of one op of a graph.
Result<std::vector<DeviceKernel>> kernels_of(const DeviceCase& c, std::string_view op, DeviceTarget target = {});

}  // namespace megartp::test
