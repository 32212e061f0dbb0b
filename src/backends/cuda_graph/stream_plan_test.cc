// Launches on streams against the edges of the plan, through a driver that follows the rules of capture.
#include "backends/cuda_graph/stream_plan.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/cuda_plans.h"

namespace megartp::cuda_graph {
namespace {

using launch::EdgeKind;
using megartp::test::FakeDriver;
using test::make_executable;

LaunchEdge edge(uint32_t from, uint32_t to, EdgeKind kind) {
  LaunchEdge e;
  e.from = from;
  e.to = to;
  e.kind = kind;
  return e;
}

// A plan whose kernels do nothing but differ by a word.
LaunchPlan plan_of(uint32_t num_kernels, std::vector<LaunchEdge> edges) {
  LaunchPlan plan;
  for (uint32_t k = 0; k < num_kernels; ++k) {
    LaunchKernel kernel;
    kernel.name = kernel.kernel.name = "k" + std::to_string(k);
    kernel.kernel.block = 32;
    kernel.kernel.params = {DeviceParam::u32("id", k)};
    plan.kernels.push_back(std::move(kernel));
  }
  plan.edges = std::move(edges);
  return plan;
}

// The edges that a capture of the plan's launches has. `inspect` sees the captured graph.
Result<std::vector<PlanEdge>> captured_edges(
    FakeDriver& fake, CudaGraphExecutable& exec,
    const std::function<void(const megartp::test::FakeGraph&)>& inspect = [](const megartp::test::FakeGraph&) {}) {
  const cuda::DriverApi& api = fake.api();
  MEGARTP_TRY(exec.prepare());
  const cuda::Stream stream = MEGARTP_TRY(cuda::make_stream(api));
  MEGARTP_CUDA_TRY(api, stream_begin_capture(stream.get(), cuda::kCaptureThreadLocal));
  MEGARTP_TRY(exec.launch_on_streams(stream.get()));
  cuda::GraphHandle handle = nullptr;
  const Status ended = cuda::check(api, api.stream_end_capture(stream.get(), &handle), "stream_end_capture(");
  const cuda::Graph graph(api, handle);
  MEGARTP_TRY(Status(ended));
  inspect(*fake.last_graph);
  return exec.edges_in(graph.get());
}

TEST(StreamPlan, AChainStaysOnOneStream) {
  const StreamPlan plan = plan_streams(3, {edge(0, 1, EdgeKind::kProgrammatic), edge(1, 2, EdgeKind::kFull)}).value();
  EXPECT_EQ(plan.num_streams, 1U);
  EXPECT_TRUE(plan.steps[0].forks);
  EXPECT_TRUE(plan.steps[1].follows_programmatically);
  EXPECT_FALSE(plan.steps[2].follows_programmatically);
  EXPECT_FALSE(plan.steps[0].records_trigger);
}

TEST(StreamPlan, SeveralProgrammaticProducersNeedAFreshStream) {
  const StreamPlan plan =
      plan_streams(3, {edge(0, 2, EdgeKind::kProgrammatic), edge(1, 2, EdgeKind::kProgrammatic)}).value();
  EXPECT_EQ(plan.num_streams, 3U);
  EXPECT_THAT(plan.steps[2].programmatic_waits, testing::ElementsAre(0, 1));
  EXPECT_TRUE(plan.steps[1].records_trigger);
  EXPECT_EQ(plan_streams(2, {edge(0, 1, EdgeKind::kLaunchCompletion)}).error().code, ErrorCode::kUnsupported);
}

TEST(LaunchOnStreams, TheSmallPlanIsCapturedAsItIsBuilt) {
  FakeDriver fake;
  const auto exec = make_executable(fake, test::small_plan()).value();
  ASSERT_TRUE(exec->upload("x", test::pattern(512, 1)));
  ASSERT_TRUE(exec->upload("w", test::pattern(70 * 130, 1)));
  ASSERT_TRUE(exec->allocate_unbound());
  EXPECT_FALSE(exec->launch_on_streams(nullptr)) << "not prepared";
  const auto captured = captured_edges(fake, *exec, [](const megartp::test::FakeGraph& graph) {
    ASSERT_EQ(graph.nodes.size(), 4U);
    EXPECT_EQ(graph.nodes[1]->priority, -5);
    EXPECT_EQ(graph.nodes[1]->cluster, 2U);
  });
  ASSERT_TRUE(captured) << captured.error().to_string();
  EXPECT_EQ(*captured, exec->planned_edges());
}

TEST(LaunchOnStreams, AllocatesNothing) {
  FakeDriver fake;
  const auto exec =
      make_executable(fake, plan_of(3, {edge(0, 1, EdgeKind::kFull), edge(0, 2, EdgeKind::kFull)})).value();
  ASSERT_TRUE(exec->prepare());
  const cuda::Stream stream = cuda::make_stream(fake.api()).value();
  fake.calls.clear();
  ASSERT_TRUE(exec->launch_on_streams(stream.get()));
  EXPECT_EQ(fake.count("cuLaunchKernelEx"), 3U);
  for (const char* call : {"cuMemAlloc", "cuEventCreate", "cuStreamCreate", "cuStreamSynchronize", "cuCtxSynchronize"})
    EXPECT_EQ(fake.count(call), 0U) << call;
}

TEST(LaunchOnStreams, OtherKernelsOfTheCallersGraphArePassedOver) {
  FakeDriver fake;
  const auto first = make_executable(fake, plan_of(2, {edge(0, 1, EdgeKind::kProgrammatic)})).value();
  const auto second = make_executable(fake, plan_of(3, {edge(0, 2, EdgeKind::kProgrammatic)})).value();
  ASSERT_TRUE(first->prepare());
  ASSERT_TRUE(second->prepare());
  const cuda::DriverApi& api = fake.api();
  const cuda::Stream stream = cuda::make_stream(api).value();
  ASSERT_EQ(api.stream_begin_capture(stream.get(), cuda::kCaptureRelaxed), cuda::kSuccess);
  ASSERT_TRUE(first->launch_on_streams(stream.get()));
  ASSERT_TRUE(second->launch_on_streams(stream.get()));
  cuda::GraphHandle handle = nullptr;
  ASSERT_EQ(api.stream_end_capture(stream.get(), &handle), cuda::kSuccess);
  const cuda::Graph graph(api, handle);
  EXPECT_EQ(first->edges_in(handle).value(), first->planned_edges());
  EXPECT_EQ(second->edges_in(handle).value(), second->planned_edges());
  // The second plan waits for all of the first.
  EXPECT_EQ(fake.last_graph->edges.size(), 1U + 1U + 2U * 1U);
  const auto third = make_executable(fake, plan_of(1, {})).value();
  ASSERT_TRUE(third->prepare());
  EXPECT_EQ(third->edges_in(handle).error().code, ErrorCode::kMismatch);
}

RC_GTEST_PROP(LaunchOnStreams, CapturedEdgesAreThePlansEdges, ()) {
  const auto num_kernels = *rc::gen::inRange<uint32_t>(1, 12);
  std::vector<LaunchEdge> edges;
  for (uint32_t to = 1; to < num_kernels; ++to)
    for (uint32_t from = 0; from < to; ++from) switch (*rc::gen::inRange(0, 5)) {
        case 0: edges.push_back(edge(from, to, EdgeKind::kFull)); break;
        case 1: edges.push_back(edge(from, to, EdgeKind::kProgrammatic)); break;
        default: break;
      }
  FakeDriver fake;
  {
    const auto exec = make_executable(fake, plan_of(num_kernels, edges)).value();
    const auto captured = captured_edges(fake, *exec);
    if (!captured) RC_FAIL(captured.error().to_string());
    RC_ASSERT(*captured == exec->planned_edges());
    RC_ASSERT(exec->edges_in(exec->graph()).value() == exec->planned_edges());
  }
  RC_ASSERT(fake.num_alive() == 0U);
}

}  // namespace
}  // namespace megartp::cuda_graph
