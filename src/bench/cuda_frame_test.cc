// The order in which the frame asks a driver for things, on a driver that only pretends. Needs NVRTC, no GPU.
#include "bench/cuda_frame.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_driver.h"

namespace megartp::bench {
namespace {

using megartp::test::FakeDriver;
using testing::ElementsAre;

class CudaFrameTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<codegen::KernelRequest> requests = frame_kernels();
    const auto compiled = codegen::compile_kernels(requests);
    if (!compiled && compiled.error().code == ErrorCode::kUnsupported) GTEST_SKIP() << compiled.error().message;
    ASSERT_TRUE(compiled) << compiled.error().to_string() << compiled.error().details;
    for (size_t i = 0; i < requests.size(); ++i)
      fake_.param_bytes[compiled->kernels[compiled->index_of_request[i]].symbol] = requests[i].param_bytes;
    auto context = cuda::Context::open(fake_.api());
    ASSERT_TRUE(context);
    auto frame = CudaFrame::create(*context);
    ASSERT_TRUE(frame) << frame.error().to_string();
    frame_ = std::move(*frame);
    fake_.calls.clear();
  }
  // The calls of one sample.
  std::vector<std::string> sample(bool flush_l2) {
    EXPECT_TRUE(frame_->time(1, 0, [](size_t, cuda::StreamHandle) { return Status{}; }, flush_l2));
    std::vector<std::string> calls;
    for (const std::string& c : fake_.calls)
      if (c.starts_with("cuLaunch") || c.starts_with("cuEvent")) calls.push_back(c);
    fake_.calls.clear();
    return calls;
  }

  FakeDriver fake_;
  std::unique_ptr<CudaFrame> frame_;
};

TEST_F(CudaFrameTest, TheDelayGoesFirstAndEventsStandAroundTheWork) {
  EXPECT_THAT(sample(false), ElementsAre("cuLaunchKernelEx", "cuEventRecordWithFlags", "cuEventRecordWithFlags",
                                         "cuEventSynchronize", "cuEventElapsedTime"));
  // Reading other data comes before the delay, so that it is over when the clock starts.
  (void)sample(true);  // allocates
  EXPECT_THAT(sample(true), ElementsAre("cuLaunchKernelEx", "cuLaunchKernelEx", "cuEventRecordWithFlags",
                                        "cuEventRecordWithFlags", "cuEventSynchronize", "cuEventElapsedTime"));
}

TEST_F(CudaFrameTest, WarmUpIsThrownAway) {
  std::vector<size_t> seen;
  const auto us = frame_->time(3, 2, [&](size_t i, cuda::StreamHandle) {
    seen.push_back(i);
    return Status{};
  });
  ASSERT_TRUE(us);
  EXPECT_THAT(*us, testing::Each(testing::DoubleNear(12.5, 1e-4)));
  EXPECT_EQ(us->size(), 3U);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(CudaFrameTest, ReadingRotatesOverPlacesThatAreLargerTogether) {
  const auto us = frame_->read(1000000, 20000000, 40);
  ASSERT_TRUE(us) << us.error().to_string();
  // The graphs are gone by now: their executables are known by address only.
  EXPECT_EQ(fake_.count("cuGraphInstantiateWithFlags"), 19U);
  ASSERT_EQ(fake_.launches.size(), 45U);  // five to warm up
  for (size_t i = 19; i < fake_.launches.size(); ++i) EXPECT_EQ(fake_.launches[i], fake_.launches[i - 19]);
  EXPECT_EQ(std::set(fake_.launches.begin(), fake_.launches.end()).size(), 19U);
  size_t largest = 0;
  for (const auto& [buffer, bytes] : fake_.buffer_bytes) largest = std::max(largest, bytes);
  EXPECT_GE(largest, 19 * 1000000U);
  EXPECT_FALSE(frame_->read(0, 1, 1));
}

TEST_F(CudaFrameTest, EverythingIsReleasedAndErrorsComeBack) {
  EXPECT_TRUE(frame_->offset(3));
  EXPECT_TRUE(frame_->empty(3));
  EXPECT_TRUE(frame_->read(4096, 1 << 20, 3));
  EXPECT_FALSE(frame_->time(3, 0, [](size_t i, cuda::StreamHandle) -> Status {
    if (i == 1) return make_error(ErrorCode::kDeviceError, "the device is gone");
    return {};
  }));
  fake_.fail_call = "cuEventElapsedTime";
  EXPECT_FALSE(frame_->offset(1));
  fake_.fail_call.clear();
  frame_.reset();
  EXPECT_EQ(fake_.num_alive(), 0U);
}

}  // namespace
}  // namespace megartp::bench
