// A small attention-pre layer with weights and inputs from seeds, for tests that run it in many ways.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowering/lower.h"
#include "models/glm52/layer_run.h"
#include "plan/kernel_plan.h"
#include "plan/target.h"
#include "support/layer_configs.h"

namespace megartp::test {

class Checkpoint {
 public:
  Checkpoint(const glm52::Config& config, int64_t layer) {
    path_ = fmt::format("{}/megartp_layer_{}_{}.safetensors", std::filesystem::temp_directory_path().string(), getpid(),
                        counter_++);
    const Status ok = glm52::synth_weights(config, {layer}, 7, path_);
    EXPECT_TRUE(ok) << ok.error().to_string();
  }
  ~Checkpoint() { std::filesystem::remove(path_); }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  const std::string& path() const { return path_; }

 private:
  static inline int counter_ = 0;
  std::string path_;
};

inline void expect_same(const glm52::TensorMap& a, const glm52::TensorMap& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, buffer] : a) {
    if (name == "gate_partials") continue;  // same bits too, but compared through the gate
    const glm52::Buffer& other = b.at(name);
    EXPECT_EQ(0, std::memcmp(buffer.bytes.get(), other.bytes.get(), buffer.num_bytes)) << what << ": " << name;
  }
}

// One layer of small_config(), ready to be executed.
inline std::unique_ptr<glm52::LayerRun> small_layer(const std::vector<RequestShape>& requests, uint64_t seed = 5) {
  const glm52::Config config = small_config();
  const Checkpoint checkpoint(config, 6);
  auto run = glm52::make_layer_run(config, {}, 6,
                                   glm52::synth_inputs(config, {}, *glm52::batch_shapes(requests), seed).value(),
                                   glm52::load_weights(config, 6, checkpoint.path()).value());
  EXPECT_TRUE(run) << run.error().to_string();
  return std::make_unique<glm52::LayerRun>(std::move(*run));
}

inline Result<std::shared_ptr<const KernelPlan>> plan_layer(const glm52::LayerRun& run, const LowerOptions& options,
                                                            Packer packer, uint32_t workers) {
  const TaskGraph tasks = MEGARTP_TRY(lower(run.graph, run.inputs.shapes, options));
  return std::make_shared<const KernelPlan>(
      MEGARTP_TRY(pack(tasks, MEGARTP_TRY(find_target("cpu")), {packer, workers})));
}

}  // namespace megartp::test
