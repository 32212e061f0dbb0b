// Plans cut from a template run on cpu-threads and give the bits of a plan that was lowered for their shape; a plan
// that was made for longer requests gives the bits of one made for the lengths that the rows have.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/glm52/layer_run.h"
#include "plan/plan_template.h"
#include "support/layer_configs.h"

namespace megartp::test {
namespace {

class Templates : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        fmt::format("{}/megartp_template_{}.safetensors", std::filesystem::temp_directory_path().string(), getpid());
    ASSERT_TRUE(glm52::synth_weights(config_, {6}, 7, path_));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  glm52::LayerRun run_for(const ShapeEnv& shapes) const {
    auto run = glm52::make_layer_run(config_, {}, 6, glm52::synth_inputs(config_, {}, shapes, 3).value(),
                                     glm52::load_weights(config_, 6, path_).value());
    EXPECT_TRUE(run) << run.error().to_string();
    return std::move(*run);
  }
  Result<glm52::TensorMap> execute(const glm52::LayerRun& run, const KernelPlan& plan) const {
    auto executable = MEGARTP_TRY(prepare_cpu_threads(std::make_shared<KernelPlan>(plan), {}));
    auto execution = MEGARTP_TRY(glm52::LayerExecution::create(run, std::move(executable)));
    MEGARTP_TRY(execution.run());
    return execution.collect();
  }
  Result<glm52::TensorMap> execute_fresh(const glm52::LayerRun& run, const ShapeEnv& shapes) const {
    const TaskGraph tasks = MEGARTP_TRY(lower(run.graph, shapes));
    return execute(run, MEGARTP_TRY(pack(tasks, *find_target("cpu"), {Packer::kCriticalPath, 3})));
  }
  static void expect_same(const Result<glm52::TensorMap>& a, const Result<glm52::TensorMap>& b) {
    ASSERT_TRUE(a) << a.error().to_string();
    ASSERT_TRUE(b) << b.error().to_string();
    ASSERT_EQ(a->size(), b->size());
    for (const auto& [name, buffer] : *a) {
      const glm52::Buffer& other = b->at(name);
      ASSERT_EQ(buffer.num_bytes, other.num_bytes);
      EXPECT_EQ(0, std::memcmp(buffer.bytes.get(), other.bytes.get(), buffer.num_bytes)) << name;
    }
  }

  glm52::Config config_ = small_config();
  std::string path_;
};

TEST_F(Templates, GiveTheBitsOfAFreshPlan) {
  const auto largest = glm52::decode_shapes(32, 1500, 5);
  const OpGraph graph = glm52::attention_pre_graph(config_, {}, 6);
  for (const FinalizerMode mode : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
    const auto made = PlanTemplate::make(graph, *largest, {mode}, *find_target("cpu"), {Packer::kCriticalPath, 3});
    ASSERT_TRUE(made) << made.error().to_string();
    PlanInstance instance = made->instance();
    for (int32_t m = 1; m <= 32; m += mode == FinalizerMode::kFused ? 3 : 7) {
      const int32_t requests = 1 + m % std::min(m, 5);
      const auto shapes = glm52::decode_shapes(m, 40 + m * 331 % 1460, requests);
      SCOPED_TRACE(fmt::format("M {}, KV {}, {} requests", m, shapes->symbols.at("KV"), requests));
      const glm52::LayerRun run = run_for(*shapes);
      ASSERT_TRUE(instance.instantiate(*shapes));
      expect_same(execute(run, instance.plan()), execute_fresh(run, *shapes));
      if (HasFailure()) return;
    }
    const auto mixed = glm52::batch_shapes(std::vector<RequestShape>{{3, 70}, {3, 3}, {1, 640}, {20, 512}});
    const glm52::LayerRun run = run_for(*mixed);
    ASSERT_TRUE(instance.instantiate(*mixed));
    expect_same(execute(run, instance.plan()), execute_fresh(run, *mixed));
  }
}

TEST_F(Templates, APlanForLongerRequestsGivesTheBitsOfOneForTheirLengths) {
  // Tensors as the longer requests need them; the rows' lengths are shorter.
  const auto planned = glm52::batch_shapes(std::vector<RequestShape>{{6, 1300}, {3, 700}, {1, 64}});
  for (const auto& lens : {std::array{1300, 700, 64}, std::array{1299, 640, 1}, std::array{513, 3, 63},
                           std::array{512, 129, 64}, std::array{6, 4, 2}}) {
    SCOPED_TRACE(lens[0]);
    ShapeEnv actual = *planned;
    for (size_t r = 0; r < lens.size(); ++r) actual.requests[r].kv_len = lens[r];
    glm52::LayerRun run = run_for(actual);
    // What a serving system leaves in the table beyond a request's length is of no consequence.
    auto* table = run.inputs.tensors.at("block_table").as<int32_t>();
    const int64_t width = planned->symbols.at("TABLE");
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t b = (lens[static_cast<size_t>(r)] + 63) / 64; b < width; ++b)
        table[r * width + b] = b % 3 == 0 ? 1 << 30 : b % 3 == 1 ? -7 : 0;
    expect_same(execute_fresh(run, *planned), execute_fresh(run, actual));
    const auto made = PlanTemplate::make(run.graph, *planned, {}, *find_target("cpu"), {Packer::kCriticalPath, 3});
    ASSERT_TRUE(made);
    expect_same(execute(run, made->instance().plan()), execute_fresh(run, actual));
  }
}

}  // namespace
}  // namespace megartp::test
