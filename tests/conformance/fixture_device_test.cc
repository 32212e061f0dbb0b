// Every fixture under tests/golden as CUDA graphs: the launch plans anywhere, the outputs on a GPU, where the backends
// must also agree bit for bit.
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_common/driver.h"
#include "backends/cuda_graph/prepare.h"
#include "backends/cuda_mega/mega_image.h"
#include "backends/cuda_mega/mega_plan.h"
#include "conformance/fixture.h"
#include "launch/launch_plan.h"

namespace megartp::test {
namespace {

// Of a whole run with the tensor cores' FP8 sums (docs/decisions/0003-what-a-check-compares.md).
constexpr double kDeviceLimit = 1e-3;

constexpr LaunchMode kLaunchModes[] = {LaunchMode::kSerial, LaunchMode::kPdl, LaunchMode::kDag, LaunchMode::kCmp};

Result<std::shared_ptr<const LaunchPlan>> plan_of_fixture(const Fixture& fixture, LaunchMode mode,
                                                          const DeviceTarget& target) {
  LaunchOptions options;
  options.mode = mode;
  options.target = target;
  return std::make_shared<const LaunchPlan>(
      MEGARTP_TRY(build_launch_plan(fixture.graph, fixture.inputs.shapes, options)));
}

class FixtureOnDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto loaded = load_fixture(GetParam());
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    fixture_ = *loaded;
  }
  std::shared_ptr<const Fixture> fixture_;
};

// Dims that the fast kernels cannot do (the heads of tiny_a's score) get generic ones: no fixture is refused.
TEST_P(FixtureOnDevice, HasALaunchPlanInEveryMode) {
  for (const LaunchMode mode : kLaunchModes) {
    const auto plan = plan_of_fixture(*fixture_, mode, {});
    ASSERT_TRUE(plan) << to_string(mode) << ": " << plan.error().to_string();
    EXPECT_GE((*plan)->kernels.size(), fixture_->graph.ops().size());
  }
}

TEST_P(FixtureOnDevice, EveryBackendAgreesAndAllGiveTheSameBits) {
  const auto api = cuda::driver();
  if (!api) GTEST_SKIP() << api.error().to_string();
  const auto gpu = cuda::device_info(**api, 0);
  ASSERT_TRUE(gpu) << gpu.error().to_string();
  std::optional<Outcomes> first;
  for (const LaunchMode mode : kLaunchModes) {
    SCOPED_TRACE(to_string(mode));
    const auto plan = plan_of_fixture(*fixture_, mode, {static_cast<uint32_t>(gpu->num_sms), gpu->smem_per_cta});
    ASSERT_TRUE(plan) << plan.error().to_string();
    const auto executable = prepare_cuda_graph(*plan);
    ASSERT_TRUE(executable) << executable.error().to_string() << "\n" << executable.error().details;
    const auto outcomes = run_fixture(*fixture_, **executable);
    ASSERT_TRUE(outcomes) << outcomes.error().to_string();
    if (first) {
      for (const auto& [name, outcome] : *outcomes) EXPECT_TRUE(outcome.bytes == first->at(name).bytes) << name;
      continue;
    }
    first = *outcomes;
    std::vector<Difference> differences = expected_differences(*fixture_, *outcomes, kDeviceLimit);
    if (GetParam() == "tiny_a") {
      const auto golden = golden_differences(*fixture_, *outcomes);
      ASSERT_TRUE(golden) << golden.error().to_string();
      differences.insert(differences.end(), golden->begin(), golden->end());
    }
    for (const Difference& d : differences) {
      fmt::print("  {:<20} {:.1e} (limit {:.0e})\n", d.tensor, d.measured, d.limit);
      EXPECT_LE(d.measured, d.limit) << d.tensor;
    }
  }
}

// The persistent kernel has no generic device ops: it refuses what its ops cannot do, by name.
TEST_P(FixtureOnDevice, ThePersistentKernelNamesTheOpThatItCannotDo) {
  const auto plan = build_mega_plan(fixture_->graph, fixture_->inputs.shapes);
  ASSERT_TRUE(plan) << plan.error().to_string();
  const auto image = cuda_mega::make_mega_image(*plan);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(image.error().message, testing::HasSubstr("'B0.finalize' (qkv_a.finalize)"));
}

INSTANTIATE_TEST_SUITE_P(All, FixtureOnDevice,
                         testing::Values("tiny_a", "ragged", "deepseek_v32", "hadamard_pow2", "shared_layer"),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace megartp::test
