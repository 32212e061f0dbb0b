// Sizes beyond the default, each on cpu-threads against cpu-reference: batches, lengths, request mixes, other models'
// dims.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance/small_layer.h"
#include "lowering/lower.h"
#include "models/glm52/layer_run.h"
#include "plan/kernel_plan.h"
#include "plan/target.h"

namespace megartp::test {
namespace {

constexpr double kMaxCalcDiff = 1e-6;

// DeepSeek-V3.2's matrices with fewer heads: 2112 x 7168 QKV-A, heads of 192 that tiles of 128 do not match, half-split
// indexer RoPE, YaRN.
glm52::Config deepseek_config() {
  glm52::Config c = glm52::deepseek_v3_2_config();
  c.num_attention_heads = 5;
  c.index_n_heads = 8;
  return c;
}

Result<glm52::TensorMap> run_threads(const glm52::LayerRun& run, const LowerOptions& lower_options, Packer packer,
                                     uint32_t workers, const CpuThreadsOptions& options = {}) {
  const auto plan = MEGARTP_TRY(plan_layer(run, lower_options, packer, workers));
  auto execution = MEGARTP_TRY(glm52::LayerExecution::create(run, MEGARTP_TRY(prepare_cpu_threads(plan, options))));
  MEGARTP_TRY(execution.run());
  return execution.collect();
}

// Builds the layer, runs it two ways, compares with the reference and between the ways.
void check_layer(const glm52::Config& config, const std::vector<RequestShape>& requests, int64_t layer = 6,
                 const glm52::Options& options = {}) {
  const Checkpoint checkpoint(config, layer);
  const auto shapes = glm52::batch_shapes(requests);
  ASSERT_TRUE(shapes) << shapes.error().to_string();
  auto inputs = glm52::synth_inputs(config, options, *shapes, 3);
  ASSERT_TRUE(inputs) << inputs.error().to_string();
  auto weights = glm52::load_weights(config, layer, checkpoint.path());
  ASSERT_TRUE(weights) << weights.error().to_string();
  const auto run = glm52::make_layer_run(config, options, layer, std::move(*inputs), std::move(*weights));
  ASSERT_TRUE(run) << run.error().to_string();

  const auto fused = run_threads(*run, {FinalizerMode::kFused}, Packer::kCriticalPath, 3);
  ASSERT_TRUE(fused) << fused.error().to_string();
  const auto tasks = run_threads(*run, {FinalizerMode::kTasks}, Packer::kRoundRobin, 5);
  ASSERT_TRUE(tasks) << tasks.error().to_string();
  expect_same(*fused, *tasks, "fused with 3 workers against tasks with 5");

  auto executable = prepare_cpu_reference(run->graph, run->inputs.shapes);
  ASSERT_TRUE(executable) << executable.error().to_string();
  auto reference = glm52::LayerExecution::create(*run, std::move(*executable));
  ASSERT_TRUE(reference) << reference.error().to_string();
  ASSERT_TRUE(reference->run());
  const auto diffs = glm52::compare(*run, *fused, reference->collect());
  ASSERT_TRUE(diffs) << diffs.error().to_string();
  size_t outputs = 0;
  for (const glm52::TensorDiff& d : *diffs) {
    outputs += d.is_output ? 1 : 0;
    EXPECT_LE(d.calc_diff, kMaxCalcDiff) << d.op << " " << d.tensor;
  }
  EXPECT_EQ(outputs, glm52::layer_has_indexer(config, layer) ? 5U : 3U);
}

std::vector<RequestShape> even(int32_t m, int32_t kv, int32_t requests) {
  const auto shapes = glm52::decode_shapes(m, kv, requests);
  EXPECT_TRUE(shapes);
  return shapes ? shapes->requests : std::vector<RequestShape>{};
}

TEST(Sizes, Batches) {
  for (const int32_t m : {1, 3, 16, 33, 128}) {
    SCOPED_TRACE(m);
    check_layer(small_config(), even(m, 200, std::min(m, 2)));
  }
}

TEST(Sizes, Lengths) {
  for (const int32_t kv : {1, 63, 64, 65, 2049, 8192}) {
    SCOPED_TRACE(kv);
    check_layer(small_config(), {{1, kv}});
  }
}

TEST(Sizes, LongestLength) {
  glm52::Config c = small_config();
  c.index_n_heads = 2;
  check_layer(c, {{2, 131072}});
}

TEST(Sizes, RequestsOfMixedLengths) {
  check_layer(small_config(), {{4, 300}, {1, 64}});
  check_layer(small_config(), {{1, 1}, {7, 513}, {2, 1025}});
  check_layer(small_config(), {{3, 70}, {3, 3}, {1, 640}, {40, 512}});
  check_layer(small_config(), {{2, 2}, {1, 999}, {5, 256}, {1, 257}, {3, 128}});
}

TEST(Sizes, RaggedDims) {
  check_layer(ragged_config(), {{5, 131}, {2, 64}});
  check_layer(ragged_config(), {{33, 600}});
}

TEST(Sizes, DeepSeekV32) { check_layer(deepseek_config(), {{2, 100}, {1, 321}}); }

TEST(Sizes, LayerWithoutIndexer) { check_layer(small_config(), {{3, 90}}, 3); }

TEST(Sizes, Options) {
  glm52::Options o;
  o.hadamard = true;
  o.act_pow2_scale = true;
  o.index_q_pow2_scale = false;
  o.index_k_pow2_scale = true;
  o.mla_pow2_scale = false;
  check_layer(small_config(), {{3, 300}, {2, 77}}, 6, o);
}

class Bits : public testing::Test {
 protected:
  void SetUp() override { run_ = small_layer({{5, 700}, {2, 129}}); }
  std::unique_ptr<glm52::LayerRun> run_;
};

TEST_F(Bits, AreTheSameForEveryWorkerCountPackerAndInterleaving) {
  const auto base = run_threads(*run_, {FinalizerMode::kFused}, Packer::kRoundRobin, 1);
  ASSERT_TRUE(base) << base.error().to_string();
  for (const Packer packer : kPackers) {
    for (const uint32_t workers : {2U, 5U, 16U}) {
      for (const uint64_t seed : {1U, 2U, 3U}) {
        CpuThreadsOptions options;
        options.randomize = true;
        options.seed = seed;
        const auto mode = seed == 2 ? FinalizerMode::kTasks : FinalizerMode::kFused;
        const auto other = run_threads(*run_, {mode}, packer, workers, options);
        ASSERT_TRUE(other) << other.error().to_string();
        expect_same(*base, *other, fmt::format("{} with {} workers, seed {}", to_string(packer), workers, seed));
      }
    }
  }
}

TEST_F(Bits, AreTheSameForEveryEventModeAndThroughRelays) {
  const auto base = run_threads(*run_, {}, Packer::kRoundRobin, 1);
  ASSERT_TRUE(base) << base.error().to_string();
  for (const EventMode mode : {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole}) {
    for (const uint32_t slots : {1U, 2U, 4U}) {
      LowerOptions lower_options;
      lower_options.events.mode = mode;
      lower_options.events.max_waits = lower_options.events.max_signals = slots;
      const TaskGraph tasks = lower(run_->graph, run_->inputs.shapes, lower_options).value();
      const bool has_relays = std::ranges::any_of(tasks.stages, [](const TaskStage& s) { return is_relay(s); });
      // D1 and E1 wait for several stages each, so one slot cannot do.
      if (slots == 1 && mode == EventMode::kExact) EXPECT_TRUE(has_relays);
      if (slots == 4) EXPECT_FALSE(has_relays);
      CpuThreadsOptions options;
      options.randomize = true;
      const auto other = run_threads(*run_, lower_options, Packer::kCriticalPath, 3, options);
      ASSERT_TRUE(other) << other.error().to_string();
      expect_same(*base, *other, fmt::format("{} with {} slots", to_string(mode), slots));
    }
  }
}

TEST_F(Bits, AreTheSameInAThousandRunsWithoutAReset) {
  const TaskGraph tasks = lower(run_->graph, run_->inputs.shapes, {}).value();
  auto plan = std::make_shared<KernelPlan>(pack(tasks, find_target("cpu").value(), {Packer::kCriticalPath, 2}).value());
  auto execution = glm52::LayerExecution::create(*run_, prepare_cpu_threads(plan).value());
  ASSERT_TRUE(execution) << execution.error().to_string();
  ASSERT_TRUE(execution->run());
  const glm52::TensorMap first = execution->collect();
  for (int i = 1; i < 1000; ++i) {
    // Poison every tenth time, so that a value left over from the run before would show.
    const auto stats = execution->run(i % 10 == 0);
    ASSERT_TRUE(stats) << "run " << i << ": " << stats.error().to_string();
    expect_same(first, execution->collect(), fmt::format("run {}", i));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace megartp::test
