// The persistent kernel with all ops of attention-pre, compiled without a GPU: no local memory, and one cubin for all
// shapes.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_mega/mega_image.h"
#include "backends/cuda_mega/mega_plan.h"
#include "codegen/compile_kernels.h"
#include "codegen/embedded_headers.h"
#include "codegen/mega_source.h"
#include "models/glm52/glm52.h"
#include "ops/mega_op.h"

namespace megartp {
namespace {

constexpr uint32_t kMaxRegisters = 128;  // 65536 over the threads of two CTAs

class MegaCodeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = codegen::Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
    for (const MegaOpInfo* op : mega_ops())
      if (std::ranges::find(codegen::embedded_headers(), op->header, &codegen::SourceHeader::name) ==
          codegen::embedded_headers().end())
        GTEST_SKIP() << op->header << " does not exist";
    options_.cache_folder = folder_;
    options_.allow_local_memory = true;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static KernelPlan plan_of(int64_t m, int64_t kv, int64_t requests) {
    const OpGraph graph = glm52::attention_pre_graph(glm52::Config{}, {}, 6);
    auto plan = build_mega_plan(graph, glm52::decode_shapes(m, kv, requests).value());
    EXPECT_TRUE(plan) << plan.error().to_string();
    return std::move(*plan);
  }
  static codegen::KernelRequest request_of(const KernelPlan& plan) {
    const auto image = cuda_mega::make_mega_image(plan);
    EXPECT_TRUE(image) << image.error().to_string();
    return codegen::mega_kernel_request(codegen::mega_opcodes(plan)).value();
  }

  const std::string folder_ = testing::TempDir() + "/mega_code_" + std::to_string(::getpid());
  codegen::CompileOptions options_;
};

TEST_F(MegaCodeTest, TwentyShapesOneCubin) {
  std::vector<codegen::KernelRequest> requests;
  for (const int64_t m : {1, 2, 16, 17, 64})
    for (const int64_t kv : {64, 1000, 8192, 131072}) requests.push_back(request_of(plan_of(m, kv, m < 2 ? 1 : 2)));
  ASSERT_EQ(requests.size(), 20U);
  const auto compiled = codegen::compile_kernels(requests, options_);
  ASSERT_TRUE(compiled) << compiled.error().to_string() << "\n" << compiled.error().details;
  EXPECT_EQ(compiled->stats.num_compiled, 1U);
  ASSERT_EQ(compiled->kernels.size(), 1U);
  const codegen::CompiledKernel& kernel = compiled->kernels[0];
  EXPECT_EQ(kernel.local_bytes, 0U);
  EXPECT_LE(kernel.num_registers, kMaxRegisters);
  EXPECT_GT(kernel.num_registers, 0U);
  RecordProperty("registers", static_cast<int>(kernel.num_registers));
  RecordProperty("cold_ms", static_cast<int>(compiled->stats.seconds * 1e3));
}

TEST_F(MegaCodeTest, CompilesWithDelaysAndATrace) {
  const codegen::KernelRequest request = request_of(plan_of(16, 8192, 2));
  options_.more_options = {"-DMEGARTP_FUZZ=1", "-DMEGARTP_TRACE=1"};
  const auto compiled = codegen::compile_kernels(std::span(&request, 1), options_);
  ASSERT_TRUE(compiled) << compiled.error().to_string() << "\n" << compiled.error().details;
  EXPECT_EQ(compiled->kernels[0].local_bytes, 0U);
}

}  // namespace
}  // namespace megartp
