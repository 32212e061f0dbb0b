// Small graphs on a real GPU: order, bytes, capture. Skipped where there is no driver, no device or no compiler.
#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_common/host_executable.h"
#include "backends/cuda_graph/kernel_trace.h"
#include "support/cuda_plans.h"

namespace megartp::cuda_graph {
namespace {

using launch::EdgeKind;
using testing::Each;

constexpr std::string_view kKernels = R"text(#pragma once
#include "device/frame.cuh"
namespace demo {
using namespace megartp::device;
struct StepParams { const float* a; const float* b; float* out; uint32_t n; uint32_t delay_ns; float add; };
// out = a + b + add, late.
template <int kWait>
__global__ void __launch_bounds__(256) step(const __grid_constant__ StepParams p) {
  const KernelFrame<kWait> frame;
  frame.enter();
  frame.after_prologue();
  frame.wait_inputs();
  const uint64_t end = global_timer() + p.delay_ns;
  while (global_timer() < end) {
  }
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i < p.n) p.out[i] = p.a[i] + p.b[i] + p.add;
}
// Bytes in which a piece of the packed weight differs from what the TMA unit makes of the plain one.
struct CompareParams { TensorMap plain; const uint8_t* packed; uint32_t* differences; uint32_t columns; };
template <int kWait>
__global__ void __launch_bounds__(128) compare(const __grid_constant__ CompareParams p) {
  __shared__ alignas(1024) uint8_t piece[8192];
  __shared__ uint64_t full;
  const KernelFrame<kWait> frame;
  frame.enter();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  frame.after_prologue();
  frame.wait_inputs();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(&full, 8192);
    tma_load_2d(piece, &p.plain, blockIdx.x * 128, blockIdx.y * 64, &full);
  }
  mbarrier_wait(&full, 0);
  const uint32_t tile = blockIdx.y * p.columns + blockIdx.x;
  uint32_t count = 0;
  for (uint32_t i = threadIdx.x; i < 8192; i += 128) count += piece[i] != p.packed[tile * 8192 + i];
  atomicAdd(&p.differences[tile], count);
}
}
)text";

constexpr uint32_t kCount = 3000;
constexpr uint32_t kDelayNs = 100000;

// Adds tensors and steps to a plan.
class PlanBuilder {
 public:
  TensorId tensor(std::string name, Storage storage, DType dtype = DType::kF32, std::vector<int64_t> dims = {kCount}) {
    ConcreteTensor t;
    t.name = std::move(name);
    t.dtype = dtype;
    t.dims = std::move(dims);
    t.storage = storage;
    plan.tensors.push_back(std::move(t));
    return plan.num_graph_tensors++;
  }
  LaunchKernel& kernel(std::string name, std::string entry, std::array<uint32_t, 3> grid, uint32_t block) {
    LaunchKernel k;
    k.name = k.kernel.name = std::move(name);
    k.kernel.header = "demo.cuh";
    k.kernel.entry = std::move(entry);
    k.kernel.grid = grid;
    k.kernel.block = block;
    plan.kernels.push_back(std::move(k));
    return plan.kernels.back();
  }
  void step(std::string name, TensorId a, TensorId b, TensorId out, float add, uint32_t delay_ns = kDelayNs) {
    kernel(std::move(name), "demo::step<$WAIT>", {(kCount + 255) / 256, 1, 1}, 256).kernel.params = {
        DeviceParam::pointer("a", a),  DeviceParam::pointer("b", b),           DeviceParam::pointer("out", out),
        DeviceParam::u32("n", kCount), DeviceParam::u32("delay_ns", delay_ns), DeviceParam::f32("add", add)};
  }
  void edge(uint32_t from, uint32_t to, EdgeKind kind) {
    LaunchEdge e;
    e.from = from;
    e.to = to;
    e.kind = kind;
    plan.edges.push_back(std::move(e));
  }

  LaunchPlan plan;
};

// x -> s0 -> s1, s2 -> s3: y = (2x + 1 + 2x + 1 + 2) + (2x + 1 + 2x + 1 + 4) + 8 = 8x + 18
LaunchPlan diamond(bool with_edges = true) {
  PlanBuilder b;
  const TensorId x = b.tensor("x", Storage::kRuntimeArg);
  const TensorId y = b.tensor("y", Storage::kOutput);
  const TensorId h0 = b.tensor("h0", Storage::kActivation);
  const TensorId h1 = b.tensor("h1", Storage::kActivation);
  const TensorId h2 = b.tensor("h2", Storage::kActivation);
  b.step("s0", x, x, h0, 1);
  b.step("s1", h0, h0, h1, 2);
  b.step("s2", h0, h0, h2, 4);
  b.step("s3", h1, h2, y, 8, 0);
  if (!with_edges) return b.plan;
  b.edge(0, 1, EdgeKind::kProgrammatic);
  b.edge(0, 2, EdgeKind::kFull);
  b.edge(1, 3, EdgeKind::kProgrammatic);
  b.edge(2, 3, EdgeKind::kProgrammatic);
  return b.plan;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
std::vector<float> input(float first) {
  std::vector<float> x(kCount);
  for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i % 100);
  return x;
}
std::vector<float> expected(const std::vector<float>& x) {
  std::vector<float> y;
  for (const float v : x) y.push_back(8 * v + 18);
  return y;
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    const auto api = cuda::driver();
    if (!api) GTEST_SKIP() << api.error().to_string();
    context_ = cuda::Context::open(**api).value();
    options_.headers = headers_;
  }
  std::unique_ptr<CudaGraphExecutable> make(LaunchPlan plan) {
    auto shared = std::make_shared<const LaunchPlan>(std::move(plan));
    auto code = LoadedCode::load(context_, *shared, options_);
    if (!code) {
      ADD_FAILURE() << code.error().to_string() << "\n" << code.error().details;
      return nullptr;
    }
    auto exec = CudaGraphExecutable::create(std::move(shared), std::move(*code));
    if (!exec) ADD_FAILURE() << exec.error().to_string();
    return exec ? std::move(*exec) : nullptr;
  }
  static std::vector<float> output(const CudaGraphExecutable& exec) {
    std::vector<float> y(kCount);
    const Status ok = exec.download("y", std::as_writable_bytes(std::span(y)));
    EXPECT_TRUE(ok) << ok.error().to_string();
    return y;
  }
  const cuda::DriverApi& api() const { return context_->api(); }

  std::shared_ptr<const cuda::Context> context_;
  codegen::CompileOptions options_;
  const std::array<codegen::SourceHeader, 1> headers_{{{"demo.cuh", kKernels}}};
};

#define ASSERT_OK(expr)                                      \
  if (const Status status_of_call = (expr); !status_of_call) \
  FAIL() << status_of_call.error().to_string() << "\n" << status_of_call.error().details

LaunchPlan packed_weight_plan();

// What the cases below run, on any machine with the compiler. Fills the cache for machines that have none.
TEST(DemoKernels, Compile) {
  if (const auto nvrtc = codegen::Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
  const std::array<codegen::SourceHeader, 1> headers{{{"demo.cuh", kKernels}}};
  codegen::CompileOptions options;
  options.headers = headers;
  for (const bool is_traced : {false, true}) {
    if (is_traced) options.more_options.emplace_back(kKernelTraceDefine);
    for (const LaunchPlan& plan : {diamond(), packed_weight_plan()}) {
      const auto compiled = codegen::compile_kernels(kernel_requests(plan), options);
      ASSERT_TRUE(compiled) << compiled.error().to_string() << "\n" << compiled.error().details;
      EXPECT_EQ(compiled->kernels.size(), 1U) << "one instance serves all steps";
    }
  }
}

TEST_F(OnDevice, KernelsRunInOrder) {
  const auto exec = make(diamond());
  ASSERT_NE(exec, nullptr);
  for (const float first : {0.0F, 7.0F, -3.0F}) {
    ASSERT_OK(exec->upload("x", bytes_of(input(first))));
    ASSERT_OK(exec->allocate_unbound());
    ASSERT_OK(exec->poison());
    ASSERT_OK(exec->run(nullptr));
    EXPECT_EQ(output(*exec), expected(input(first)));
  }
}

// The control: without its edges the same graph is wrong, so that the delays show whether edges do anything.
TEST_F(OnDevice, WithoutEdgesTheyDoNot) {
  const auto exec = make(diamond(false));
  ASSERT_NE(exec, nullptr);
  ASSERT_OK(exec->upload("x", bytes_of(input(1))));
  ASSERT_OK(exec->allocate_unbound());
  ASSERT_OK(exec->poison());
  ASSERT_OK(exec->run(nullptr));
  EXPECT_NE(output(*exec), expected(input(1)));
}

TEST_F(OnDevice, AddressesChangeBetweenRuns) {
  const auto exec = make(diamond());
  ASSERT_NE(exec, nullptr);
  const cuda::Context::Scope current(*context_);
  ASSERT_OK(exec->upload("x", bytes_of(input(1))));
  ASSERT_OK(exec->allocate_unbound());
  ASSERT_OK(exec->run(nullptr));
  const auto other = cuda::DeviceBuffer::allocate(api(), kCount * 4).value();
  const auto data = bytes_of(input(50));
  ASSERT_OK(cuda::check(api(), api().memcpy_htod(other.get(), data.data(), data.size()), "memcpy_htod("));
  ASSERT_OK(exec->bind("x", other.get(), other.size()));
  ASSERT_OK(exec->run(nullptr));
  EXPECT_EQ(output(*exec), expected(input(50)));
}

TEST_F(OnDevice, ExecutablesShareNothing) {
  const auto first = make(diamond());
  const auto second = make(diamond());
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  ASSERT_OK(first->upload("x", bytes_of(input(1))));
  ASSERT_OK(second->upload("x", bytes_of(input(2))));
  ASSERT_OK(first->allocate_unbound());
  ASSERT_OK(second->allocate_unbound());
  const cuda::Context::Scope current(*context_);
  const cuda::Stream a = cuda::make_stream(api()).value();
  const cuda::Stream b = cuda::make_stream(api()).value();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(first->run(a.get()));
    ASSERT_OK(second->run(b.get()));
  }
  EXPECT_EQ(output(*first), expected(input(1)));
  EXPECT_EQ(output(*second), expected(input(2)));
}

TEST_F(OnDevice, CapturedStreamsHaveTheSameEdgesAndResults) {
  const auto exec = make(diamond());
  ASSERT_NE(exec, nullptr);
  ASSERT_OK(exec->upload("x", bytes_of(input(4))));
  ASSERT_OK(exec->allocate_unbound());
  ASSERT_OK(exec->prepare());
  EXPECT_EQ(exec->edges_in(exec->graph()).value(), exec->planned_edges());
  const cuda::Context::Scope current(*context_);
  const cuda::Stream stream = cuda::make_stream(api()).value();
  ASSERT_OK(
      cuda::check(api(), api().stream_begin_capture(stream.get(), cuda::kCaptureThreadLocal), "stream_begin_capture("));
  ASSERT_OK(exec->launch_on_streams(stream.get()));
  cuda::GraphHandle handle = nullptr;
  ASSERT_OK(cuda::check(api(), api().stream_end_capture(stream.get(), &handle), "stream_end_capture("));
  const cuda::Graph captured(api(), handle);
  const auto edges = exec->edges_in(handle);
  ASSERT_TRUE(edges) << edges.error().to_string();
  EXPECT_EQ(*edges, exec->planned_edges());
  const cuda::GraphExec instance = cuda::instantiate(api(), handle).value();
  ASSERT_OK(exec->poison());
  ASSERT_OK(cuda::check(api(), api().graph_launch(instance.get(), stream.get()), "graph_launch("));
  EXPECT_EQ(output(*exec), expected(input(4)));
  // And without a capture.
  ASSERT_OK(exec->poison());
  ASSERT_OK(exec->launch_on_streams(stream.get()));
  EXPECT_EQ(output(*exec), expected(input(4)));
}

constexpr int64_t kRows = 200;
constexpr int64_t kColumns = 304;

LaunchPlan packed_weight_plan() {
  PlanBuilder b;
  const TensorId w = b.tensor("w", Storage::kWeight, DType::kF8E4M3, {kRows, kColumns});
  const TensorId out = b.tensor("differences", Storage::kState, DType::kI32, {12});
  TensorMapSpec map;
  map.element = DType::kF8E4M3;
  map.dims = {kColumns, kRows};
  map.strides = {kColumns};
  map.box = {128, 64};
  b.kernel("compare", "demo::compare<$WAIT>", {3, 4, 1}, 128).kernel.params = {
      DeviceParam::tensor_map("plain", w, map), DeviceParam::pointer("packed", w, WeightLayout::kTiles64x128),
      DeviceParam::pointer("differences", out), DeviceParam::u32("columns", 3)};
  return b.plan;
}

TEST_F(OnDevice, PackedWeightsLieAsTheTmaUnitSwizzles) {
  const auto exec = make(packed_weight_plan());
  ASSERT_NE(exec, nullptr);
  ASSERT_OK(exec->upload("w", test::pattern(kRows * kColumns, 1)));
  ASSERT_OK(exec->allocate_unbound());
  ASSERT_OK(exec->run(nullptr));
  std::vector<uint32_t> differences(12, 99);
  ASSERT_OK(exec->download("differences", std::as_writable_bytes(std::span(differences))));
  EXPECT_THAT(differences, Each(0U));
}

// All four steps are the same code, and each has records of its own.
TEST_F(OnDevice, TheTraceHasEveryCta) {
  auto plan = std::make_shared<const LaunchPlan>(diamond());
  options_.more_options.emplace_back(kKernelTraceDefine);
  const auto code = LoadedCode::load(context_, *plan, options_, {.has_module_per_kernel = true});
  ASSERT_TRUE(code) << code.error().to_string();
  const auto exec = CudaGraphExecutable::create(plan, *code).value();
  ASSERT_OK(exec->upload("x", bytes_of(input(3))));
  ASSERT_OK(exec->allocate_unbound());
  {
    auto tracer = KernelTracer::create(plan, *code);
    ASSERT_TRUE(tracer) << tracer.error().to_string();
    ASSERT_OK(exec->run(nullptr));
    ASSERT_OK(tracer->clear());
    EXPECT_FALSE(tracer->read());
    ASSERT_OK(exec->run(nullptr));
    const auto trace = tracer->read();
    ASSERT_TRUE(trace) << trace.error().to_string();
    const std::vector<KernelSummary> kernels = summarize(*trace);
    ASSERT_EQ(kernels.size(), 4U);
    for (const KernelSummary& k : kernels) EXPECT_EQ(k.num_ctas, (kCount + 255) / 256);
    // The clock steps by about a microsecond on some devices.
    constexpr uint64_t kStepNs = 2000;
    for (const size_t before : {0U, 1U, 2U}) EXPECT_GE(kernels[before].done.first_ns + kStepNs, kDelayNs);
    for (const auto& [before, after] : {std::pair(0U, 1U), std::pair(0U, 2U), std::pair(1U, 3U), std::pair(2U, 3U)})
      EXPECT_GE(kernels[after].inputs.first_ns + kStepNs, kernels[before].done.last_ns) << before << " " << after;
  }
  EXPECT_EQ(output(*exec), expected(input(3)));
  // The records are gone; the code runs on.
  ASSERT_OK(exec->run(nullptr));
  EXPECT_EQ(output(*exec), expected(input(3)));
}

TEST_F(OnDevice, BehindTheHostInterface) {
  auto host = make_host_executable(make(diamond())).value();
  auto x = input(5);
  std::vector<float> y(kCount);
  ASSERT_OK(host->bind("x", x.data(), x.size() * 4));
  ASSERT_OK(host->bind("y", y.data(), y.size() * 4));
  host->poison();
  const auto stats = host->run();
  ASSERT_TRUE(stats) << stats.error().to_string();
  EXPECT_EQ(y, expected(x));
  EXPECT_EQ(static_cast<float*>(host->data("h0"))[3], 2 * x[3] + 1);
}

}  // namespace
}  // namespace megartp::cuda_graph
