// attention-pre under the dynamic scheduler: the bits of the static walk, for every event mode, finalizer, number of
// workers and schedulers, dispatch and run.
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/backend.h"
#include "conformance/small_layer.h"

namespace megartp::test {
namespace {

class DynamicLayer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = small_layer({{3, 200}, {2, 129}});
    base_ = std::make_unique<glm52::TensorMap>();
    auto result = execute({}, Packer::kRoundRobin, 1, {});
    ASSERT_TRUE(result) << result.error().to_string();
    *base_ = std::move(*result);
  }
  static void TearDownTestSuite() {
    run_.reset();
    base_.reset();
  }

  static Result<glm52::TensorMap> execute(const LowerOptions& lower_options, Packer packer, uint32_t workers,
                                          const CpuThreadsOptions& options) {
    const auto plan = MEGARTP_TRY(plan_layer(*run_, lower_options, packer, workers));
    auto execution = MEGARTP_TRY(glm52::LayerExecution::create(*run_, MEGARTP_TRY(prepare_cpu_threads(plan, options))));
    MEGARTP_TRY(execution.run());
    return execution.collect();
  }

  static CpuThreadsOptions dynamic(Dispatch dispatch, uint32_t schedulers) {
    CpuThreadsOptions options;
    options.schedule = Schedule::kDynamic;
    options.dispatch = dispatch;
    options.num_schedulers = schedulers;
    return options;
  }

  static inline std::unique_ptr<glm52::LayerRun> run_;
  static inline std::unique_ptr<glm52::TensorMap> base_;
};

constexpr Dispatch kAllDispatch[] = {Dispatch::kMixed, Dispatch::kAhead, Dispatch::kJustInTime};

TEST_F(DynamicLayer, GivesTheSameBitsForEveryEventModeAndFinalizer) {
  uint64_t seed = 0;
  for (const EventMode mode : {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole}) {
    for (const FinalizerMode finalizer : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
      for (const Dispatch dispatch : kAllDispatch) {
        LowerOptions lower_options;
        lower_options.finalizer = finalizer;
        lower_options.events.mode = mode;
        CpuThreadsOptions options = dynamic(dispatch, 2);
        options.randomize = true;
        options.seed = ++seed;
        const auto result = execute(lower_options, Packer::kCriticalPath, 4, options);
        ASSERT_TRUE(result) << result.error().to_string() << result.error().details;
        expect_same(*base_, *result, fmt::format("{} events, {}", to_string(mode), to_string(dispatch)));
      }
    }
  }
}

TEST_F(DynamicLayer, GivesTheSameBitsForEveryNumberOfThreadsAndThroughRelays) {
  for (uint32_t workers = 1; workers <= 16; ++workers) {
    for (const uint32_t schedulers : {1U, 2U, 4U}) {
      if (schedulers > workers) continue;
      LowerOptions lower_options;
      lower_options.events.max_waits = lower_options.events.max_signals = workers % 2 == 0 ? 4 : 1;
      CpuThreadsOptions options = dynamic(kAllDispatch[workers % 3], schedulers);
      options.ring_entries = workers % 4 == 0 ? 4 : 256;
      const auto result = execute(lower_options, Packer::kRoundRobin, workers, options);
      ASSERT_TRUE(result) << result.error().to_string() << result.error().details;
      expect_same(*base_, *result, fmt::format("{} workers, {} schedulers", workers, schedulers));
    }
  }
}

TEST_F(DynamicLayer, GivesTheSameBitsInTwoHundredRunsWithoutAReset) {
  for (const Dispatch dispatch : kAllDispatch) {
    const auto plan = plan_layer(*run_, {}, Packer::kCriticalPath, 3);
    ASSERT_TRUE(plan) << plan.error().to_string();
    auto execution = glm52::LayerExecution::create(*run_, prepare_cpu_threads(*plan, dynamic(dispatch, 2)).value());
    ASSERT_TRUE(execution) << execution.error().to_string();
    for (int i = 0; i < 200; ++i) {
      // Poison every tenth time, so that a value left over from the run before would show.
      const auto stats = execution->run(i % 10 == 0);
      ASSERT_TRUE(stats) << "run " << i << ": " << stats.error().to_string() << stats.error().details;
      if (i % 10 == 0 || i == 199) expect_same(*base_, execution->collect(), fmt::format("run {}", i));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace megartp::test
