// The device code of the whole attention-pre layer, compiled and scanned without a GPU.
#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_graph/kernel_trace.h"
#include "codegen/check_code.h"
#include "models/glm52/glm52.h"

namespace megartp {
namespace {

struct Batch {
  int64_t m, kv, requests;
};

class AttentionPreCode : public testing::TestWithParam<Batch> {
 protected:
  void SetUp() override {
    if (const auto nvrtc = codegen::Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
    const auto [m, kv, requests] = GetParam();
    const OpGraph graph = glm52::attention_pre_graph(glm52::Config{}, {}, 6, 1);
    for (const OpInfo& op : graph.ops())
      if (find_device_family(op.kind) == nullptr) GTEST_SKIP() << "op family " << op.kind << " has no device code";
    auto plan = build_launch_plan(graph, glm52::decode_shapes(m, kv, requests).value());
    ASSERT_TRUE(plan) << plan.error().to_string();
    plan_ = std::move(*plan);
    // The default batch is compiled anew, for the time that it takes; kernels that the others have in common, with each
    // other and with FamiliesCode, once for all.
    options_.cache_folder = m == 16 ? folder_ : MEGARTP_SHARED_CUBINS;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = testing::TempDir() + "/attention_pre_code_" + std::to_string(::getpid());
  LaunchPlan plan_;
  codegen::CompileOptions options_;
};

TEST_P(AttentionPreCode, CompilesWithoutSpillsAndKeepsItsDescription) {
  const std::vector<codegen::KernelRequest> requests = cuda_graph::kernel_requests(plan_);
  const auto compiled = codegen::compile_kernels(requests, options_);
  ASSERT_TRUE(compiled) << compiled.error().to_string() << "\n" << compiled.error().details;
  if (compiled->stats.num_cached == 0) RecordProperty("cold_ms", static_cast<int>(compiled->stats.seconds * 1e3));
  const auto findings = codegen::check_code(plan_, *compiled);
  ASSERT_TRUE(findings) << findings.error().to_string();
  for (const codegen::CodeFinding& f : *findings) ADD_FAILURE() << f.rule << ": " << f.message;

  // From the cache it takes 50 ms at most on an idle machine; this one may be busy.
  const auto warm = codegen::compile_kernels(requests, options_);
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->stats.num_compiled, 0U);
  RecordProperty("warm_ms", static_cast<int>(warm->stats.seconds * 1e3));
  EXPECT_LT(warm->stats.seconds, 1.0);
}

// As they are compiled for the kernel trace: no spills, and nothing new before the wait but the stores to the record,
// whose address comes from no parameter. The scan does not know that the thread that stores it is one that waits.
TEST_P(AttentionPreCode, CompilesWithTheTraceWithoutSpills) {
  options_.more_options.emplace_back(cuda_graph::kKernelTraceDefine);
  options_.cache_folder = MEGARTP_SHARED_CUBINS;
  const auto compiled = codegen::compile_kernels(cuda_graph::kernel_requests(plan_), options_);
  ASSERT_TRUE(compiled) << compiled.error().to_string() << "\n" << compiled.error().details;
  const auto findings = codegen::check_code(plan_, *compiled);
  ASSERT_TRUE(findings) << findings.error().to_string();
  for (const codegen::CodeFinding& f : *findings) {
    const bool is_record = f.rule == "unknown_before_wait" && f.message.find(": STG ") != std::string::npos &&
                           f.message.find("no parameter was traced to") != std::string::npos;
    EXPECT_TRUE(is_record) << f.rule << ": " << f.message;
  }
  for (const codegen::CompiledKernel& k : compiled->kernels)
    EXPECT_NE(k.cubin->find("megartp_kernel_trace"), std::string::npos) << k.name << " has no trace";
}

INSTANTIATE_TEST_SUITE_P(Batches, AttentionPreCode,
                         testing::Values(Batch{1, 2048, 1}, Batch{16, 8192, 2}, Batch{128, 8192, 4},
                                         Batch{256, 131072, 8}),
                         [](const auto& test) { return "M" + std::to_string(test.param.m); });

}  // namespace
}  // namespace megartp
