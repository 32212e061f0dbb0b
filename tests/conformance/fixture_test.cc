// Every fixture under tests/golden through every way to run it: two backends, two finalizers, two packers, several
// worker counts.
#include "conformance/fixture.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lower.h"
#include "plan/kernel_plan.h"
#include "plan/target.h"
#include "support/op_harness.h"

namespace megartp::test {
namespace {

// FP8 rounding done alike on both sides leaves the order of sums, and single BF16 roundings that it flips.
constexpr double kFp8PathLimit = 1e-6;

constexpr const char* kNames[] = {"tiny_a", "ragged", "deepseek_v32", "hadamard_pow2", "shared_layer"};

struct Variant {
  FinalizerMode finalizer;
  Packer packer;
  uint32_t workers;
  std::string name() const {
    return fmt::format("finalizer {}, packer {}, {} workers", finalizer == FinalizerMode::kFused ? "fused" : "tasks",
                       to_string(packer), workers);
  }
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const FinalizerMode finalizer : {FinalizerMode::kFused, FinalizerMode::kTasks})
    for (const Packer packer : kPackers)
      for (const uint32_t workers : {1U, 3U, 7U}) all.push_back({finalizer, packer, workers});
  return all;
}

Result<Outcomes> run_threads(const Fixture& fixture, const LowerOptions& options, const Variant& variant) {
  const TaskGraph tasks = MEGARTP_TRY(lower(fixture.graph, fixture.inputs.shapes, options));
  const TargetDesc target = MEGARTP_TRY(find_target("cpu"));
  auto plan = std::make_shared<KernelPlan>(MEGARTP_TRY(pack(tasks, target, {variant.packer, variant.workers})));
  MEGARTP_TRY(check_plan(*plan));
  const auto executable = MEGARTP_TRY(prepare_cpu_threads(std::move(plan)));
  return run_fixture(fixture, *executable);
}

Result<Outcomes> run_threads(const Fixture& fixture, const Variant& variant) {
  return run_threads(fixture, {variant.finalizer}, variant);
}

Result<Outcomes> run_reference(const Fixture& fixture) {
  const auto executable = MEGARTP_TRY(prepare_cpu_reference(fixture.graph, fixture.inputs.shapes));
  return run_fixture(fixture, *executable);
}

void expect_within(const std::vector<Difference>& differences) {
  for (const Difference& d : differences) {
    testing::Test::RecordProperty(d.tensor, fmt::format("{:.1e}", d.measured));
    EXPECT_LE(d.measured, d.limit) << d.tensor;
  }
}
void expect_outputs(const Fixture& fixture, const Outcomes& outcomes) {
  expect_within(expected_differences(fixture, outcomes, kFp8PathLimit));
}

class FixtureTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = load_fixture(GetParam());
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    fixture_ = *loaded;
  }
  std::shared_ptr<const Fixture> fixture_;
};

TEST_P(FixtureTest, CpuReferenceAgreesWithTheIndependentReference) {
  const auto outcomes = run_reference(*fixture_);
  ASSERT_TRUE(outcomes) << outcomes.error().to_string();
  expect_outputs(*fixture_, *outcomes);
}

TEST_P(FixtureTest, CpuThreadsAgreesAndEveryPlanGivesTheSameBits) {
  std::optional<Outcomes> first;
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name());
    const auto outcomes = run_threads(*fixture_, variant);
    ASSERT_TRUE(outcomes) << outcomes.error().to_string();
    if (!first) {
      expect_outputs(*fixture_, *outcomes);
      first = *outcomes;
      continue;
    }
    ASSERT_EQ(outcomes->size(), first->size());
    for (const auto& [name, outcome] : *outcomes) EXPECT_TRUE(outcome.bytes == first->at(name).bytes) << name;
  }
}

// As the persistent kernel's plans are cut: K splits of a GPU, tiles of 64 weight rows, parts of rows, small
// finalizers.
TEST_P(FixtureTest, PlansForAGpuAgreeToo) {
  LowerOptions options{FinalizerMode::kTasks};
  options.num_sms = 132;
  std::optional<Outcomes> first;
  for (const uint32_t workers : {1U, 7U}) {
    const auto outcomes = run_threads(*fixture_, options, {FinalizerMode::kTasks, Packer::kInsertion, workers});
    ASSERT_TRUE(outcomes) << outcomes.error().to_string();
    if (!first) {
      expect_outputs(*fixture_, *outcomes);
      first = *outcomes;
    }
    for (const auto& [name, outcome] : *outcomes) EXPECT_TRUE(outcome.bytes == first->at(name).bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FixtureTest, testing::ValuesIn(kNames),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(Fixtures, AreAllRun) {
  const auto names = fixture_names();
  ASSERT_TRUE(names) << names.error().to_string();
  EXPECT_THAT(*names, testing::ElementsAreArray(kNames));
}

TEST(Golden, TinyAAgreesWithTransformersWithinFp8Rounding) {
  const auto fixture = load_fixture("tiny_a");
  ASSERT_TRUE(fixture) << fixture.error().to_string();
  auto outcomes = run_threads(**fixture, {FinalizerMode::kFused, Packer::kCriticalPath, 3});
  ASSERT_TRUE(outcomes) << outcomes.error().to_string();
  const auto differences = golden_differences(**fixture, *outcomes);
  ASSERT_TRUE(differences) << differences.error().to_string();
  EXPECT_EQ(differences->size(), 9U);
  expect_within(*differences);
}

}  // namespace
}  // namespace megartp::test
