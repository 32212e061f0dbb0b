// Every fixture under tests/golden through every way to run it: two backends, two finalizers, two packers, several
// worker counts.
#include "conformance/fixture.h"

#include <cmath>
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
    for (const Packer packer : {Packer::kRoundRobin, Packer::kCriticalPath})
      for (const uint32_t workers : {1U, 3U, 7U}) all.push_back({finalizer, packer, workers});
  return all;
}

Result<Outcomes> run_threads(const Fixture& fixture, const Variant& variant) {
  const TaskGraph tasks = MEGARTP_TRY(lower(fixture.graph, fixture.inputs.shapes, {variant.finalizer}));
  const TargetDesc target = MEGARTP_TRY(find_target("cpu"));
  auto plan = std::make_shared<KernelPlan>(MEGARTP_TRY(pack(tasks, target, {variant.packer, variant.workers})));
  MEGARTP_TRY(check_plan(*plan));
  const auto executable = MEGARTP_TRY(prepare_cpu_threads(std::move(plan)));
  return run_fixture(fixture, *executable);
}

Result<Outcomes> run_reference(const Fixture& fixture) {
  const auto executable = MEGARTP_TRY(prepare_cpu_reference(fixture.graph, fixture.inputs.shapes));
  return run_fixture(fixture, *executable);
}

void expect_outputs(const Fixture& fixture, const Outcomes& outcomes) {
  for (const TensorView& expected : fixture.expect.tensors()) {
    const auto actual = outcomes.find(expected.name);
    if (actual == outcomes.end()) {
      ADD_FAILURE() << "no output " << expected.name;
      continue;
    }
    const double limit = expected.name == "residual" ? 0.0 : kFp8PathLimit;
    const double measured = diff(fixture, expected.name, actual->second, expected);
    testing::Test::RecordProperty(expected.name, fmt::format("{:.1e}", measured));
    EXPECT_LE(measured, limit) << expected.name;
  }
  if (!fixture.has_indexer) return;
  const Outcome& logits = outcomes.at("logits");
  const std::vector<double> values = logits.doubles();
  const int32_t* lengths = fixture.inputs.tensors.at("context_lens").as<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto width = static_cast<size_t>(logits.dims[1]);
    const bool visible = i % width < static_cast<size_t>(lengths[i / width]);
    ASSERT_EQ(visible, std::isfinite(values[i])) << "logits row " << i / width << " column " << i % width;
    ASSERT_TRUE(visible || values[i] < 0) << "logits row " << i / width << " column " << i % width;
  }
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

INSTANTIATE_TEST_SUITE_P(All, FixtureTest, testing::ValuesIn(kNames),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(Fixtures, AreAllRun) {
  const auto names = fixture_names();
  ASSERT_TRUE(names) << names.error().to_string();
  EXPECT_THAT(*names, testing::ElementsAreArray(kNames));
}

// A golden tensor against the outcome that means the same. q_lat and q_pe are parts of q_out.
TEST(Golden, TinyAAgreesWithTransformersWithinFp8Rounding) {
  const auto fixture = load_fixture("tiny_a");
  ASSERT_TRUE(fixture) << fixture.error().to_string();
  const auto golden = SafetensorsFile::open(golden_path("tiny_a_io.safetensors"));
  ASSERT_TRUE(golden) << golden.error().to_string();
  auto outcomes = run_threads(**fixture, {FinalizerMode::kFused, Packer::kCriticalPath, 3});
  ASSERT_TRUE(outcomes) << outcomes.error().to_string();
  const glm52::Config& c = (*fixture)->config;
  const std::vector<double> q_out = outcomes->at("q_out").doubles();
  const auto width = static_cast<size_t>(c.kv_lora_rank + c.qk_rope_head_dim);
  const auto latent = static_cast<size_t>(c.kv_lora_rank);

  const std::pair<const char*, double> limits[] = {{"residual", 0}, {"gate", 1e-3},    {"kv_latent", 1e-3},
                                                   {"k_pe", 1e-3},  {"index_k", 1e-3}, {"index_q", 1e-3},
                                                   {"q_lat", 2e-3}, {"q_pe", 2e-3},    {"logits", 5e-3}};
  for (const auto& [name, limit] : limits) {
    const TensorView* expected = golden->find(fmt::format("expect.{}", name));
    ASSERT_NE(expected, nullptr) << name;
    if (std::string_view(name).starts_with("q_")) {
      const bool is_latent = std::string_view(name) == "q_lat";
      std::vector<double> part;
      for (size_t i = 0; i < q_out.size(); ++i)
        if ((i % width < latent) == is_latent) part.push_back(q_out[i]);
      EXPECT_LE(calc_diff(part, to_doubles(expected->dtype, expected->data, part.size())), limit) << name;
    } else {
      EXPECT_LE(diff(**fixture, name, outcomes->at(name), *expected), limit) << name;
    }
  }
}

}  // namespace
}  // namespace megartp::test
