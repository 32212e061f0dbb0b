// Plans of a small attention-pre layer, and code that no compiler has seen, for tests with the pretended driver.
#pragma once

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "backends/cuda_mega/mega_executable.h"
#include "backends/cuda_mega/mega_plan.h"
#include "codegen/mega_source.h"
#include "models/glm52/glm52.h"
#include "support/fake_driver.h"
#include "support/layer_configs.h"

namespace megartp::cuda_mega::test {

// GLM-5.2's sizes where the device ops ask for them.
inline glm52::Config fast_config() {
  glm52::Config c = megartp::test::small_config();
  c.index_n_heads = 8;
  c.kv_lora_rank = 512;
  return c;
}

inline KernelPlan layer_plan(int64_t m, int64_t kv, uint32_t workers, Packer packer = Packer::kCriticalPath) {
  const OpGraph graph = glm52::attention_pre_graph(fast_config(), {}, 6);
  MegaPlanOptions options;
  options.num_workers = workers;
  options.packer = packer;
  auto plan = build_mega_plan(graph, glm52::decode_shapes(m, kv, m < 2 ? 1 : 2).value(), options);
  EXPECT_TRUE(plan) << plan.error().to_string();
  return std::move(*plan);
}

inline codegen::CompiledKernels pretended_code(megartp::test::FakeDriver& fake) {
  codegen::CompiledKernels compiled;
  codegen::CompiledKernel code;
  code.name = code.symbol = "mega";
  code.cubin = std::make_shared<const std::string>("cubin");
  fake.param_bytes["mega"] = sizeof(abi::MegaParams);
  compiled.index_of_request = {0};
  compiled.kernels.push_back(std::move(code));
  return compiled;
}

inline Result<std::unique_ptr<MegaExecutable>> make_executable(megartp::test::FakeDriver& fake,
                                                               std::shared_ptr<const KernelPlan> plan,
                                                               const MegaRunOptions& options = {}) {
  auto context = MEGARTP_TRY(cuda::Context::open(fake.api()));
  auto code = MEGARTP_TRY(MegaCode::load(std::move(context), codegen::mega_opcodes(*plan), pretended_code(fake)));
  return MegaExecutable::create(std::move(plan), std::move(code), options);
}

}  // namespace megartp::cuda_mega::test
