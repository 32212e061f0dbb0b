// Whole benchmark runs on a driver that only pretends, with kernels that do nothing: what is made, bound and launched.
// Needs NVRTC, no GPU.
#include "bench/cuda_timer.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/cold_trace.h"
#include "bench/edge_tuning.h"
#include "bench/replay_check.h"
#include "codegen/mega_source.h"
#include "launch/fake_families.h"
#include "support/fake_cupti.h"
#include "support/fake_driver.h"
#include "support/layer_configs.h"
#include "support/mega_plans.h"

namespace megartp::bench {
namespace {

using megartp::test::FakeDriver;
using megartp::test::small_config;

// In place of the persistent kernel: compiles in no time.
constexpr std::string_view kFakeMega = R"text(#pragma once
#include "device/mega/frame.cuh"
namespace megartp::device {
template <class... Ops>
struct MegaOps {};
template <class Ops>
__global__ void mega_kernel(const __grid_constant__ abi::MegaParams) {}
}  // namespace megartp::device
)text";

constexpr LaunchMode kModes[] = {LaunchMode::kSerial, LaunchMode::kPdl, LaunchMode::kDag, LaunchMode::kCmp};

class CudaTimerTest : public testing::Test {
 protected:
  void SetUp() override {
    headers_ = {{{"fake.cuh", test::kFakeHeader}, {"device/mega/mega_kernel.cuh", kFakeMega}}};
    compile_.headers = headers_;
    std::string pattern = (std::filesystem::temp_directory_path() / "megartp_bench_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    weights_ = make_weights(small_config());
    base_.find_family = families_.finder();
    if (!teach_driver()) GTEST_SKIP() << "NVRTC is missing";
    context_ = *cuda::Context::open(fake_.api());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  glm52::Weights make_weights(const glm52::Config& config) const {
    const std::string path = folder_ + "/weights.safetensors";
    EXPECT_TRUE(glm52::synth_weights(config, {6}, 1, path));
    auto weights = glm52::load_weights(config, 6, path);
    EXPECT_TRUE(weights) << weights.error().to_string();
    return weights ? std::move(*weights) : glm52::Weights{};
  }

  // Tells the driver names and parameter sizes of all kernels that may be loaded.
  bool teach_driver() {
    std::vector<codegen::KernelRequest> requests = frame_kernels();
    requests.push_back(compare_kernel());
    const OpGraph graph = glm52::attention_pre_graph(small_config(), {}, 6);
    const LaunchPlan plan = *build_launch_plan(graph, *glm52::decode_shapes(3, 70, 1), base_);
    for (const LaunchKernel& k : plan.kernels)
      for (const DeviceWait wait : {DeviceWait::kEntry, DeviceWait::kPrologue, DeviceWait::kPrefetch})
        requests.push_back(codegen::kernel_request(k.kernel, wait));
    requests.push_back(
        *codegen::mega_kernel_request(codegen::mega_opcodes(*build_mega_plan(graph, *glm52::decode_shapes(3, 70, 1)))));
    const auto compiled = codegen::compile_kernels(requests, compile_);
    if (!compiled) {
      EXPECT_EQ(compiled.error().code, ErrorCode::kUnsupported) << compiled.error().details;
      return false;
    }
    for (size_t i = 0; i < requests.size(); ++i)
      fake_.param_bytes[compiled->kernels[compiled->index_of_request[i]].symbol] = requests[i].param_bytes;
    return true;
  }

  std::unique_ptr<CudaTimer> make_timer(const cuda::CuptiApi* cupti = nullptr) {
    return make_timer(small_config(), weights_, cupti);
  }
  std::unique_ptr<CudaTimer> make_timer(const glm52::Config& config, const glm52::Weights& weights,
                                        const cuda::CuptiApi* cupti = nullptr) {
    CudaTimerOptions options;
    options.cupti = cupti;
    options.num_copies = 3;
    options.num_samples = 7;
    options.num_warm_up = 2;
    options.compile = compile_;
    auto timer = CudaTimer::create(config, {}, 6, weights, options, context_);
    EXPECT_TRUE(timer) << timer.error().to_string();
    return timer ? std::move(*timer) : nullptr;
  }

  Result<glm52::LayerRun> make_run() const {
    const ShapeEnv shapes = *glm52::decode_shapes(3, 70, 1);
    auto inputs = MEGARTP_TRY(glm52::synth_inputs(small_config(), {}, shapes, 1));
    return glm52::make_layer_run(small_config(), {}, 6, std::move(inputs), weights_);
  }

  FakeDriver fake_;
  std::shared_ptr<const cuda::Context> context_;
  std::array<codegen::SourceHeader, 2> headers_;
  codegen::CompileOptions compile_;
  test::FakeFamilies families_;
  LaunchOptions base_;
  glm52::Weights weights_;
  std::string folder_;
};

TEST_F(CudaTimerTest, TimesEveryBackendAndReleasesEverything) {
  {
    const auto timer = make_timer();
    ASSERT_NE(timer, nullptr);
    const Batch batches[] = {{3, 70, 1}, {4, 200, 2}};
    for (const BenchCase& c : backend_cases(kModes, batches, base_)) {
      fake_.launches.clear();
      const auto row = timer->time(c);
      ASSERT_TRUE(row) << row.error().to_string() << row.error().details;
      EXPECT_EQ(row->name, to_string(c.launch.mode));
      EXPECT_EQ(row->cold.n, 7U);
      EXPECT_EQ(row->same->n, 7U);
      EXPECT_EQ(row->num_kernels, 9U);
      EXPECT_GT(row->num_bytes, 0U);
      EXPECT_GT(row->read_us, 0);
      ASSERT_GE(fake_.launches.size(), 18U);
      // Cold ones rotate over the copies, the others stay with the first.
      for (size_t i = 3; i < 9; ++i) EXPECT_EQ(fake_.launches[i], fake_.launches[i - 3]);
      EXPECT_EQ(std::set(fake_.launches.begin(), fake_.launches.begin() + 9).size(), 3U);
      for (size_t i = 9; i < 18; ++i) EXPECT_EQ(fake_.launches[i], fake_.launches[0]);
    }
    BenchReport report;
    EXPECT_TRUE(timer->fill_head(report));
    EXPECT_EQ(report.num_copies, 3U);
    EXPECT_GT(report.weight_bytes, 0U);
  }
  context_.reset();
  EXPECT_EQ(fake_.num_alive(), 0U);
}

// Kernel k of a launch starts 100 ns after the one before it and takes 250 ns.
TEST_F(CudaTimerTest, SpansAreThoseOfEveryLaunchButTheWarmUp) {
  megartp::test::FakeCupti cupti;
  const auto timer = make_timer(&cupti.api());
  ASSERT_NE(timer, nullptr);
  const Batch batches[] = {{3, 70, 1}};
  const std::vector<BenchCase> cases = backend_cases(kModes, batches, base_);
  std::vector<BenchRow> rows(cases.size());
  uint64_t start = 1000;
  size_t num_lost = 0;
  cupti.on_enable = [&] { fake_.launches.clear(); };
  cupti.on_flush = [&] {
    for (size_t i = num_lost; i < fake_.launches.size(); ++i, start += 5000)
      for (size_t k = 0; k < fake_.launches[i]->graph->nodes.size(); ++k)
        cupti.add_kernel(static_cast<uint32_t>(start), 1, start + 100 * k, start + 100 * k + 250);
  };
  const Status added = timer->add_spans(cases, cuda::ActivitySource::kKernels, rows);
  ASSERT_TRUE(added) << added.error().to_string();
  for (const BenchRow& row : rows) {
    ASSERT_TRUE(row.span);
    EXPECT_EQ(row.span->n, 7U);
    EXPECT_DOUBLE_EQ(row.span->median, 1.05);
    EXPECT_EQ(row.traced->n, 7U);
  }
  num_lost = 1;
  const Status lost = timer->add_spans(cases, cuda::ActivitySource::kKernels, rows);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kDeviceError);
  EXPECT_NE(lost.error().message.find("8 launches"), std::string::npos) << lost.error().message;
}

TEST_F(CudaTimerTest, PartsOfTheGraphAndSingleEdges) {
  const auto timer = make_timer();
  ASSERT_NE(timer, nullptr);
  constexpr int64_t kRows[] = {1, 3};
  const Batch batch{3, 70, 1};
  BenchCase whole;
  whole.batch = batch;
  whole.launch = base_;
  const LaunchPlan plan = *timer->plan(whole);
  std::vector<BenchCase> cases = growing_cases(timer->graph(), LaunchMode::kCmp, batch, base_);
  for (const int which : {1, 2})
    for (BenchCase& c : pdl_cases(which, *find_pdl_edge(timer->graph(), plan, which), kRows, batch)) {
      c.launch.find_family = base_.find_family;
      cases.push_back(c);
    }
  for (const BenchCase& c : cases) {
    const auto row = timer->time(c);
    EXPECT_TRUE(row) << c.group << ": " << row.error().to_string() << row.error().details;
  }
}

// The driver knows the kernel of all ops and no other one.
TEST_F(CudaTimerTest, OneKernelOfMegaRunsEveryPartOfTheGraph) {
  const glm52::Config config = cuda_mega::test::fast_config();
  const auto timer = make_timer(config, make_weights(config));
  ASSERT_NE(timer, nullptr);
  MegaPlanOptions mega;
  mega.num_workers = 7;
  const std::vector<BenchCase> cases = mega_growing_cases(timer->graph(), mega, {3, 70, 1}, base_);
  ASSERT_EQ(cases.size(), 17U);
  for (const BenchCase& c : cases) {
    const auto row = timer->time(c);
    ASSERT_TRUE(row) << c.group << ", " << c.name << ": " << row.error().to_string() << row.error().details;
    EXPECT_EQ(row->num_kernels, 1U);
    if (c.is_empty) EXPECT_EQ(row->num_bytes, 0U);
  }
}

TEST_F(CudaTimerTest, TunesEdges) {
  const auto timer = make_timer();
  ASSERT_NE(timer, nullptr);
  BenchCase c;
  c.batch = {3, 70, 1};
  c.launch = base_;
  const auto result = tune_edges(*timer->plan(c), [&](const EdgeLevels& levels) {
    c.launch.levels = levels;
    return timer->quick_us(c);
  });
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->start_us, result->us) << "all times are the same here";
}

TEST_F(CudaTimerTest, ReplaysOfAllBackendsAreCompared) {
  const auto run = make_run();
  ASSERT_TRUE(run) << run.error().to_string();
  ReplayOptions options;
  options.launch = base_;
  options.num_replays = 5;
  options.compile = compile_;
  const auto report = check_replays(*run, kModes, options, context_);
  ASSERT_TRUE(report) << report.error().to_string() << report.error().details;
  EXPECT_EQ(report->num_replays, 5U);
  EXPECT_EQ(report->backends.size(), 4U);
  EXPECT_THAT(report->tensors, testing::IsSupersetOf({"q_out", "logits", "index_k_cache", "mla_kv_cache"}));
  EXPECT_TRUE(report->mismatches.empty());
  EXPECT_EQ(fake_.launches.size(), 20U);
}

TEST_F(CudaTimerTest, TracesColdReplaysInTurnWithPlainOnes) {
  fake_.global_bytes["megartp_kernel_trace"] = sizeof(abi::KernelTraceTarget);
  const auto run = make_run();
  ASSERT_TRUE(run) << run.error().to_string();
  const auto plan = std::make_shared<const LaunchPlan>(*build_launch_plan(run->graph, run->inputs.shapes, base_));
  {
    ColdTraceOptions options;
    options.num_copies = 3;
    options.num_warm_up = 2;
    options.num_traces = 4;
    options.num_pairs = 6;
    options.compile = compile_;
    const auto cold = trace_cold_replay(*run, plan, options, context_);
    ASSERT_TRUE(cold) << cold.error().to_string() << cold.error().details;
    EXPECT_EQ(cold->plain_us.n, 6U);
    EXPECT_EQ(cold->traced_us.n, 6U);
    EXPECT_EQ(cold->device, context_->info().name);
    size_t num_ctas = 0;
    for (const LaunchKernel& k : plan->kernels) num_ctas += size_t{k.kernel.grid[0]} * k.kernel.grid[1];
    EXPECT_EQ(cold->raw.ctas.size(), num_ctas);
    EXPECT_EQ(cold->raw.ctas[0].done, 0U) << "no kernel ran here";
    // Pairs with their warm-up, traces, and one of each kind to compare what they wrote. No copy comes twice in a row.
    ASSERT_EQ(fake_.launches.size(), 16U + 4U + 2U);
    for (size_t i = 1; i < 20; ++i) EXPECT_NE(fake_.launches[i], fake_.launches[i - 1]) << i;
    EXPECT_EQ(std::set(fake_.launches.begin(), fake_.launches.begin() + 16).size(), 6U) << "every copy, both ways";
  }
  context_.reset();
  EXPECT_EQ(fake_.num_alive(), 0U);
}

}  // namespace
}  // namespace megartp::bench
