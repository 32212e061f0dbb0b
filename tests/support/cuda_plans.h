// Launch plans made by hand, and code that no compiler has seen, for tests with the pretended driver.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backends/cuda_graph/cuda_graph_executable.h"
#include "support/fake_driver.h"

namespace megartp::cuda_graph::test {

//   x, w -> first -> h -> second -> y       third reads h and counts; fourth needs second fully and third
//   programmatically
inline LaunchPlan small_plan() {
  using launch::EdgeKind;
  LaunchPlan plan;
  plan.name = "small";
  const auto tensor = [&](std::string name, DType dtype, std::vector<int64_t> dims, Storage storage) {
    ConcreteTensor t;
    t.name = std::move(name);
    t.dtype = dtype;
    t.dims = std::move(dims);
    t.storage = storage;
    plan.tensors.push_back(std::move(t));
    return static_cast<TensorId>(plan.tensors.size() - 1);
  };
  const TensorId x = tensor("x", DType::kF32, {16, 8}, Storage::kRuntimeArg);
  const TensorId w = tensor("w", DType::kF8E4M3, {70, 130}, Storage::kWeight);
  const TensorId h = tensor("h", DType::kBF16, {16, 100}, Storage::kActivation);
  const TensorId y = tensor("y", DType::kF32, {16, 4}, Storage::kOutput);
  const TensorId cache = tensor("cache", DType::kU8, {64}, Storage::kState);
  plan.num_graph_tensors = static_cast<uint32_t>(plan.tensors.size());
  const TensorId counter = tensor("D.counter", DType::kI32, {8}, Storage::kActivation);
  const TensorId constant = tensor("D.constant", DType::kI32, {3}, Storage::kActivation);
  plan.workspaces = {{counter, true, {}}, {constant, false, {7, 8, 9}}};

  const auto kernel = [&](std::string name, std::vector<DeviceParam> params, int priority, uint32_t smem) {
    LaunchKernel k;
    k.name = k.kernel.name = std::move(name);
    k.kernel.header = "none.cuh";
    k.kernel.entry = k.name;
    k.kernel.grid = {7, 2, 1};
    k.kernel.block = 128;
    k.kernel.smem_bytes = smem;
    k.kernel.params = std::move(params);
    k.priority = priority;
    plan.kernels.push_back(std::move(k));
  };
  TensorMapSpec map;
  map.element = DType::kBF16;
  map.dims = {100, 16};
  map.strides = {208};
  map.box = {64, 16};
  kernel("first",
         {DeviceParam::pointer("x", x), DeviceParam::pointer("w", w, WeightLayout::kTiles64x128),
          DeviceParam::pointer("h", h), DeviceParam::u32("rows", 16)},
         -1, 100000);
  kernel("second", {DeviceParam::tensor_map("h", h, map), DeviceParam::pointer("y", y), DeviceParam::f32("s", 0.5F)},
         -9, 0);
  kernel("third", {DeviceParam::pointer("h", h), DeviceParam::pointer("counter", counter)}, 0, 0);
  kernel("fourth", {DeviceParam::pointer("cache", cache), DeviceParam::pointer("y", y)}, 0, 0);
  plan.kernels[1].kernel.cluster = 2;
  const auto edge = [&](uint32_t from, uint32_t to, EdgeKind kind) {
    LaunchEdge e;
    e.from = from;
    e.to = to;
    e.kind = kind;
    plan.edges.push_back(std::move(e));
  };
  edge(0, 1, EdgeKind::kProgrammatic);
  edge(0, 2, EdgeKind::kFull);
  edge(1, 3, EdgeKind::kFull);
  edge(2, 3, EdgeKind::kProgrammatic);
  return plan;
}

// Code for every kernel of the plan; tells the driver the kernels' names and sizes.
inline codegen::CompiledKernels pretended_code(megartp::test::FakeDriver& fake, const LaunchPlan& plan) {
  codegen::CompiledKernels compiled;
  for (const LaunchKernel& k : plan.kernels) {
    codegen::CompiledKernel code;
    code.name = code.symbol = k.name;
    code.cubin = std::make_shared<const std::string>("cubin of " + k.name);
    fake.param_bytes[k.name] = codegen::param_layout(k.kernel.params).num_bytes;
    compiled.index_of_request.push_back(static_cast<uint32_t>(compiled.kernels.size()));
    compiled.kernels.push_back(std::move(code));
  }
  return compiled;
}

inline Result<std::unique_ptr<CudaGraphExecutable>> make_executable(megartp::test::FakeDriver& fake, LaunchPlan plan) {
  auto shared = std::make_shared<const LaunchPlan>(std::move(plan));
  auto context = MEGARTP_TRY(cuda::Context::open(fake.api()));
  auto code = MEGARTP_TRY(LoadedCode::load(std::move(context), *shared, pretended_code(fake, *shared)));
  return CudaGraphExecutable::create(std::move(shared), std::move(code));
}

inline std::vector<std::byte> pattern(size_t num_bytes, unsigned seed) {
  std::vector<std::byte> bytes(num_bytes);
  for (size_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

}  // namespace megartp::cuda_graph::test
