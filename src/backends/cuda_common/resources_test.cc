// Errors and owners, on a driver that only pretends; and what a machine without a driver says.
#include "backends/cuda_common/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_driver.h"

namespace megartp::cuda {
namespace {

using test::FakeDriver;
using testing::AnyOf;
using testing::HasSubstr;

TEST(Driver, IsThereOrItsErrorSaysWhatIsMissing) {
  const auto api = driver();
  if (api) {
    EXPECT_NE((*api)->graph_launch, nullptr);
    return;
  }
  EXPECT_EQ(api.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(api.error().message, AnyOf(HasSubstr("libcuda.so.1"), HasSubstr("cuInit")));
  EXPECT_EQ(driver().error().message, api.error().message);
}

TEST(Driver, ErrorsNameCallAndReason) {
  const FakeDriver fake;
  EXPECT_TRUE(check(fake.api(), kSuccess, "graph_launch(exec, stream)"));
  const Error error = check(fake.api(), 719, "graph_launch(exec, stream)").error();
  EXPECT_EQ(error.code, ErrorCode::kDeviceError);
  EXPECT_EQ(error.message, "cuGraphLaunch: CUDA_ERROR_FAKE (719): pretended");
  EXPECT_EQ(check(fake.api(), kErrorOutOfMemory, "mem_alloc(").error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(check(fake.api(), kErrorNoDevice, "init(").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(check(fake.api(), kErrorLaunchTimeout, "stream_synchronize(").error().code, ErrorCode::kTimeout);
}

TEST(Driver, VersionText) {
  EXPECT_EQ(version_text(13000), "13.0");
  EXPECT_EQ(version_text(12090), "12.9");
}

TEST(Resources, AreReleased) {
  FakeDriver fake;
  const DriverApi& api = fake.api();
  {
    const auto context = Context::open(api).value();
    EXPECT_EQ(context->info().num_sms, 132);
    const Context::Scope current(*context);
    EXPECT_EQ(fake.pushed, 1);
    auto stream = make_stream(api).value();
    const auto event = make_event(api).value();
    const auto graph = make_graph(api).value();
    const auto exec = instantiate(api, graph.get()).value();
    const auto buffer = DeviceBuffer::allocate(api, 1000).value();
    EXPECT_EQ(buffer.size(), 1000U);
    EXPECT_EQ(fake.num_alive(), 6U);
    stream = Stream();
    EXPECT_EQ(fake.num_alive(), 5U);
  }
  EXPECT_EQ(fake.num_alive(), 0U);
  EXPECT_EQ(fake.pushed, 0);
}

TEST(Resources, NoSuchDevice) {
  FakeDriver fake;
  EXPECT_EQ(Context::open(fake.api(), 3).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(fake.num_alive(), 0U);
}

TEST(Resources, OutOfMemoryTellsTheSize) {
  FakeDriver fake;
  fake.fail_call = "cuMemAlloc";
  const auto buffer = DeviceBuffer::allocate(fake.api(), 4096);
  ASSERT_FALSE(buffer);
  EXPECT_THAT(buffer.error().to_string(), HasSubstr("bytes=4096"));
  EXPECT_EQ(DeviceBuffer::allocate(fake.api(), 0).value().get(), 0U);
}

TEST(Resources, EdgesAreAddedAndRead) {
  FakeDriver fake;
  fake.param_bytes["k"] = 4;
  const DriverApi& api = fake.api();
  const auto graph = make_graph(api).value();
  const auto module = load_module(api, "cubin").value();
  EXPECT_THAT(get_function(api, module, "other").error().to_string(), HasSubstr("symbol=other"));
  KernelNodeParams params;
  params.function = get_function(api, module, "k").value();
  uint32_t word = 7;
  void* pointers[] = {&word};
  params.params = pointers;
  NodeHandle a = nullptr;
  NodeHandle b = nullptr;
  ASSERT_EQ(api.graph_add_kernel_node(&a, graph.get(), nullptr, 0, &params), kSuccess);
  ASSERT_EQ(api.graph_add_kernel_node(&b, graph.get(), nullptr, 0, &params), kSuccess);
  const GraphEdge edge{a, b, {kPortProgrammatic, 0, kEdgeProgrammatic, {}}};
  EXPECT_TRUE(add_edge(api, graph.get(), edge));
  EXPECT_THAT(read_edges(api, graph.get()).value(), testing::ElementsAre(edge));
  EXPECT_THAT(read_nodes(api, graph.get()).value(), testing::UnorderedElementsAre(a, b));
  EXPECT_FALSE(add_edge(api, graph.get(), edge)) << "a pair has one edge";
}

}  // namespace
}  // namespace megartp::cuda
