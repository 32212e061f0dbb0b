#include "backends/cuda_common/cupti.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_cupti.h"

namespace megartp::cuda {
namespace {

using megartp::test::FakeCupti;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Cupti, IsThereOrSaysWhatIsMissing) {
  const auto api = cupti();
  if (api) {
    uint32_t version = 0;
    EXPECT_EQ((*api)->get_version(&version), kCuptiSuccess);
    EXPECT_GT(version, 0U);
  } else {
    EXPECT_EQ(api.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(api.error().message, HasSubstr("CUPTI"));
  }
}

TEST(ActivityTrace, ALaunchSpansItsKernels) {
  FakeCupti fake;
  auto trace = ActivityTrace::start(fake.api(), ActivitySource::kKernels);
  ASSERT_TRUE(trace);
  EXPECT_THAT(fake.enabled, ElementsAre(kActivityConcurrentKernel));
  EXPECT_EQ(ActivityTrace::start(fake.api(), ActivitySource::kKernels).error().code, ErrorCode::kInternal);
  // Two launches, out of order, over several buffers, with kernels that overlap; and one outside of a graph.
  for (uint32_t k = 0; k < 12; ++k) fake.add_kernel(7, 3, 5000 + 100 * (11 - k), 5250 + 100 * (11 - k));
  fake.add_kernel(6, 0, 4000, 4500);
  for (uint32_t k = 0; k < 12; ++k) fake.add_kernel(5, 3, 1000 + 100 * k, 1350 + 100 * k);
  fake.add_kernel(8, 3, 9000, 0);  // its end is not known
  const auto spans = (*trace)->finish();
  ASSERT_TRUE(spans) << spans.error().to_string();
  EXPECT_THAT(*spans, ElementsAre(LaunchSpan{1000, 2450, 12}, LaunchSpan{5000, 6350, 12}));
  EXPECT_DOUBLE_EQ((*spans)[0].us(), 1.45);
  EXPECT_THAT(fake.enabled, IsEmpty());
}

TEST(ActivityTrace, GraphsHaveARecordALaunch) {
  FakeCupti fake;
  auto trace = ActivityTrace::start(fake.api(), ActivitySource::kGraphs);
  ASSERT_TRUE(trace);
  fake.add_kernel(1, 3, 10, 20);
  fake.add_graph(2, 100, 400);
  fake.add_graph(3, 500, 900);
  EXPECT_THAT((*trace)->finish().value(), ElementsAre(LaunchSpan{100, 400, 0}, LaunchSpan{500, 900, 0}));
}

TEST(ActivityTrace, StopsWhenItGoes) {
  FakeCupti fake;
  fake.add_kernel(1, 3, 10, 20);
  {
    EXPECT_TRUE(ActivityTrace::start(fake.api(), ActivitySource::kKernels));
  }
  EXPECT_THAT(fake.enabled, IsEmpty());
  auto next = ActivityTrace::start(fake.api(), ActivitySource::kKernels);
  ASSERT_TRUE(next) << "the one before it is gone";
  EXPECT_THAT((*next)->finish().value(), IsEmpty());
}

TEST(ActivityTrace, ErrorsAreNamed) {
  FakeCupti fake;
  fake.enable_status = 38;
  const auto refused = ActivityTrace::start(fake.api(), ActivitySource::kKernels);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("cuptiActivityEnable: as it was told (38)"));
  fake.enable_status = kCuptiSuccess;
  fake.num_dropped = 2;
  auto trace = ActivityTrace::start(fake.api(), ActivitySource::kKernels);
  ASSERT_TRUE(trace);
  fake.add_kernel(1, 3, 10, 20);
  const auto spans = (*trace)->finish();
  ASSERT_FALSE(spans);
  EXPECT_THAT(spans.error().message, HasSubstr("dropped 2 records"));
}

}  // namespace
}  // namespace megartp::cuda
