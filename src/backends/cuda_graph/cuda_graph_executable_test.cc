// What is asked of the driver, in which order, with which bytes; on a driver that only pretends.
#include "backends/cuda_graph/cuda_graph_executable.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_common/host_executable.h"
#include "backends/cuda_common/weight_packing.h"
#include "support/cuda_plans.h"

namespace megartp::cuda_graph {
namespace {

using megartp::test::FakeDriver;
using megartp::test::FakeNode;
using test::make_executable;
using test::pattern;
using test::small_plan;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kWeightBytes = 70 * 130;

uint64_t word64(const std::string& blob, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, blob.data() + offset, sizeof(value));
  return value;
}

Status fill_in(CudaGraphExecutable& exec) {
  MEGARTP_TRY(exec.upload("x", pattern(16 * 8 * 4, 1)));
  MEGARTP_TRY(exec.upload("w", pattern(kWeightBytes, 2)));
  return exec.allocate_unbound();
}

class CudaGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_executable(fake_, small_plan());
    ASSERT_TRUE(made) << made.error().to_string();
    exec_ = std::move(*made);
  }
  FakeDriver fake_;
  std::unique_ptr<CudaGraphExecutable> exec_;
  cuda::StreamHandle no_stream_ = nullptr;
};

TEST_F(CudaGraphTest, BuildsNodesAndEdges) {
  ASSERT_TRUE(fill_in(*exec_));
  const Status prepared = exec_->prepare();
  ASSERT_TRUE(prepared) << prepared.error().to_string();
  const auto& nodes = fake_.last_graph->nodes;
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_THAT(nodes[0]->params.grid, ElementsAre(7, 2, 1));
  EXPECT_THAT(nodes[0]->params.block, ElementsAre(128, 1, 1));
  EXPECT_EQ(nodes[0]->params.dynamic_smem_bytes, 100000U);
  EXPECT_EQ(fake_.functions[0]->max_dynamic_smem, 100000);
  EXPECT_EQ(nodes[0]->priority, -1);
  EXPECT_EQ(nodes[1]->priority, -5) << "clamped to what the device has";
  EXPECT_EQ(nodes[1]->cluster, 2U);
  EXPECT_EQ(fake_.count("cuGraphAddDependencies"), 4U) << "one call an edge";
  EXPECT_EQ(fake_.last_graph->edges[0].data, (cuda::EdgeData{1, 0, 1, {}}));
  EXPECT_EQ(fake_.last_graph->edges[1].data, cuda::EdgeData{});
  EXPECT_EQ(exec_->edges_in(exec_->graph()).value(), exec_->planned_edges());
}

TEST_F(CudaGraphTest, PacksParameters) {
  ASSERT_TRUE(fill_in(*exec_));
  ASSERT_TRUE(exec_->prepare());
  const auto& nodes = fake_.last_graph->nodes;
  const std::string& first = nodes[0]->blob;
  EXPECT_EQ(word64(first, 0), exec_->address("x"));
  EXPECT_EQ(word64(first, 8), exec_->packed_address("w"));
  EXPECT_EQ(word64(first, 16), exec_->address("h"));
  EXPECT_EQ(word64(first, 24) & 0xffffffffU, 16U);
  const std::string& second = nodes[1]->blob;  // map at 0, y at 128, s at 136
  EXPECT_EQ(second.size(), 192U);
  EXPECT_EQ(word64(second, 0), exec_->address("h"));
  EXPECT_EQ(word64(second, 8), uint64_t{9} << 32 | 2) << "BF16, rank 2";
  EXPECT_EQ(word64(second, 32), 3U) << "swizzle of 128 bytes";
  EXPECT_EQ(word64(second, 128), exec_->address("y"));
  EXPECT_EQ(word64(second, 136) & 0xffffffffU, std::bit_cast<uint32_t>(0.5F));
  EXPECT_EQ(exec_->address("w"), 0U) << "no kernel wants it as it is in the checkpoint";
}

TEST_F(CudaGraphTest, ARunIsOneLaunch) {
  ASSERT_TRUE(fill_in(*exec_));
  ASSERT_TRUE(exec_->prepare());
  fake_.calls.clear();
  ASSERT_TRUE(exec_->run(no_stream_));
  EXPECT_THAT(fake_.calls, ElementsAre("cuCtxPushCurrent", "cuGraphLaunch", "cuCtxPopCurrent"));
}

TEST_F(CudaGraphTest, NewAddressesUpdateTheNodesThatUseThem) {
  ASSERT_TRUE(fill_in(*exec_));
  ASSERT_TRUE(exec_->run(no_stream_));
  alignas(16) std::byte other[16 * 4 * 4];
  ASSERT_TRUE(exec_->bind("y", reinterpret_cast<cuda::DevicePtr>(&other), sizeof(other)));
  fake_.calls.clear();
  ASSERT_TRUE(exec_->run(no_stream_));
  EXPECT_EQ(fake_.count("cuGraphExecKernelNodeSetParams"), 2U) << "second and fourth";
  EXPECT_EQ(fake_.count("cuGraphInstantiateWithFlags"), 0U);
  EXPECT_EQ(fake_.count("cuMemAlloc"), 0U);
  const auto& blobs = fake_.launches.back()->blobs;
  const auto& nodes = fake_.last_graph->nodes;
  EXPECT_EQ(word64(blobs.at(nodes[1].get()), 128), reinterpret_cast<uint64_t>(&other));
  EXPECT_EQ(word64(blobs.at(nodes[3].get()), 8), reinterpret_cast<uint64_t>(&other));
  EXPECT_EQ(blobs.at(nodes[0].get()), nodes[0]->blob);
  ASSERT_TRUE(exec_->bind("y", reinterpret_cast<cuda::DevicePtr>(&other), sizeof(other)));
  fake_.calls.clear();
  ASSERT_TRUE(exec_->run(no_stream_));
  EXPECT_EQ(fake_.count("cuGraphExecKernelNodeSetParams"), 0U) << "the same address again";
}

TEST_F(CudaGraphTest, ADriverThatStoresOtherEdgesIsFoundOut) {
  ASSERT_TRUE(fill_in(*exec_));
  fake_.has_edge_bug = true;
  const Status prepared = exec_->prepare();
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kDeviceError);
  EXPECT_THAT(prepared.error().message, HasSubstr("programmatic edge first->second"));
  fake_.has_edge_bug = false;
  ASSERT_TRUE(exec_->prepare()) << "nothing of the failed graph is left";
  EXPECT_EQ(fake_.last_graph->edges.size(), 4U);
}

TEST_F(CudaGraphTest, WrongBindingsNameTheTensor) {
  EXPECT_THAT(exec_->prepare().error().message, HasSubstr("'x' is not bound"));
  EXPECT_EQ(exec_->bind("z", 256, 4).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(exec_->bind("x", 256, 4).error().message, HasSubstr("'x' F32 [16, 8] needs 512 bytes, got 4"));
  EXPECT_THAT(exec_->bind("x", 264, 512).error().message, HasSubstr("aligned"));
  EXPECT_THAT(exec_->bind("h", 256, 3200).error().message, HasSubstr("workspace"));
  EXPECT_THAT(exec_->bind_packed("x", 256, 512).error().message, HasSubstr("'x'"));
  std::vector<std::byte> buffer(16);
  EXPECT_FALSE(exec_->download("x", buffer));
}

TEST_F(CudaGraphTest, WeightsArePackedOnce) {
  const auto weight = pattern(kWeightBytes, 3);
  std::vector<std::byte> expected(cuda::packed_weight_bytes(70, 130));
  ASSERT_TRUE(cuda::pack_weight(weight, 70, 130, expected));
  const auto packed_on_device = [&](const CudaGraphExecutable& e) {
    const auto* at = reinterpret_cast<const std::byte*>(e.packed_address("w"));
    return std::vector<std::byte>(at, at + expected.size());
  };
  ASSERT_TRUE(exec_->upload("w", weight));
  EXPECT_EQ(packed_on_device(*exec_), expected);

  // The same through an address of the caller, and shared with a second executable.
  auto device_copy = cuda::DeviceBuffer::allocate(fake_.api(), kWeightBytes).value();
  std::memcpy(reinterpret_cast<void*>(device_copy.get()), weight.data(), weight.size());
  auto other = make_executable(fake_, small_plan()).value();
  ASSERT_TRUE(other->bind("w", device_copy.get(), kWeightBytes));
  EXPECT_EQ(packed_on_device(*other), expected);
  auto third = make_executable(fake_, small_plan()).value();
  ASSERT_TRUE(third->bind_packed("w", exec_->packed_address("w"), expected.size()));
  EXPECT_EQ(third->packed_address("w"), exec_->packed_address("w"));
  EXPECT_NE(third->address("h"), exec_->address("h")) << "each has a workspace of its own";
  ASSERT_TRUE(third->upload("x", pattern(512, 0)));
  ASSERT_TRUE(third->allocate_unbound());
  EXPECT_TRUE(third->run(no_stream_));
}

TEST_F(CudaGraphTest, UploadDownloadZeroAndPoison) {
  const auto x = pattern(512, 9);
  ASSERT_TRUE(exec_->upload("x", x));
  std::vector<std::byte> back(512);
  ASSERT_TRUE(exec_->download("x", back));
  EXPECT_EQ(back, x);
  ASSERT_TRUE(exec_->allocate_unbound());
  ASSERT_TRUE(exec_->poison());
  std::vector<std::byte> counter(32, std::byte{1});
  ASSERT_TRUE(exec_->download("D.counter", counter));
  EXPECT_THAT(counter, testing::Each(std::byte{0}));
  std::vector<uint32_t> constant(3);
  ASSERT_TRUE(exec_->download("D.constant", std::as_writable_bytes(std::span(constant))));
  EXPECT_THAT(constant, ElementsAre(7, 8, 9));
  std::vector<std::byte> y(256);
  ASSERT_TRUE(exec_->download("y", y));
  EXPECT_THAT(y, testing::Each(std::byte{0xff}));
  std::vector<std::byte> cache(64, std::byte{1});
  ASSERT_TRUE(exec_->download("cache", cache));
  EXPECT_THAT(cache, testing::Each(std::byte{0})) << "states keep their contents";
}

TEST(CudaGraph, EveryFailingCallIsReportedAndNothingIsLost) {
  FakeDriver fake;
  const auto whole_life = [&]() -> Status {
    const auto exec = MEGARTP_TRY(make_executable(fake, small_plan()));
    MEGARTP_TRY(fill_in(*exec));
    MEGARTP_TRY(exec->run(nullptr));
    cuda::Stream stream = MEGARTP_TRY(cuda::make_stream(fake.api()));
    return exec->launch_on_streams(stream.get());
  };
  ASSERT_TRUE(whole_life());
  const auto num_calls = static_cast<int64_t>(fake.calls.size());
  int num_failed = 0;
  for (int64_t n = 0; n < num_calls; ++n) {
    fake.calls.clear();
    fake.fail_at = n;
    const Status result = whole_life();
    EXPECT_EQ(fake.num_alive(), 0U) << "call " << n;
    EXPECT_EQ(fake.pushed, 0);
    if (fake.fail_at >= 0) break;  // all calls that can fail are through
    ++num_failed;
    ASSERT_FALSE(result) << "call " << n << " failed unseen: " << fake.calls[static_cast<size_t>(n)];
    EXPECT_THAT(result.error().message, HasSubstr("CUDA_ERROR_FAKE"));
  }
  EXPECT_GT(num_failed, 40);
}

TEST(CudaGraph, BehindTheHostInterface) {
  FakeDriver fake;
  auto host = make_host_executable(make_executable(fake, small_plan()).value()).value();
  auto x = pattern(512, 1);
  auto w = pattern(kWeightBytes, 2);
  auto cache = pattern(64, 3);
  std::vector<std::byte> y(256);
  EXPECT_THAT(host->run().error().message, HasSubstr("'x' is not bound"));
  ASSERT_TRUE(host->bind("x", x.data(), x.size()));
  ASSERT_TRUE(host->bind("w", w.data(), w.size()));
  ASSERT_TRUE(host->bind("cache", cache.data(), cache.size()));
  ASSERT_TRUE(host->bind("y", y.data(), y.size()));
  ASSERT_TRUE(host->run());
  host->poison();
  fake.calls.clear();
  ASSERT_TRUE(host->run());
  EXPECT_EQ(fake.count("cuGraphLaunch"), 1U);
  EXPECT_THAT(y, testing::Each(std::byte{0xff})) << "the pretended kernels write nothing";
  EXPECT_EQ(cache, pattern(64, 3)) << "there and back";
  EXPECT_EQ(host->data("y"), y.data());
  EXPECT_NE(host->data("h"), nullptr);
  host.reset();
  EXPECT_EQ(fake.num_alive(), 0U);
}

}  // namespace
}  // namespace megartp::cuda_graph
