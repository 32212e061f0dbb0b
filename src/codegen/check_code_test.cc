// Kernels that keep their descriptions, and the same with one thing wrong. Needs NVRTC, no GPU.
#include "codegen/check_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp::codegen {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kKernels = R"text(#pragma once
#include <cstdint>
namespace demo {
struct Params { const float* w; const float* x; float* y; uint32_t n; };
__device__ inline void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void trigger() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ inline float plain(const float* p) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
// kFault 0: none; 1: no wait; 2: x before the wait; 3: weights behind the wait; 4: no trigger.
template <int kFault>
__global__ void scale(const __grid_constant__ Params p) {
  if (kFault != 4) trigger();
  const uint32_t i = threadIdx.x;
  float w = 0, x = 0;
  if (kFault != 3) w = plain(p.w + i);
  if (kFault == 2) x = plain(p.x + i);
  if (kFault != 1) wait();
  if (kFault == 3) w = plain(p.w + i);
  if (kFault != 2) x = plain(p.x + i);
  p.y[i] = w * x;
}
}
)text";

class CheckCode : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
  }

  std::vector<CodeFinding> findings(int fault, bool is_programmatic = true) {
    LaunchPlan plan;
    LaunchKernel k;
    k.name = "A0";
    k.has_programmatic_in = is_programmatic;
    k.kernel.header = "demo.cuh";
    k.kernel.entry = "demo::scale<" + std::to_string(fault) + ">";
    k.kernel.params = {DeviceParam::pointer("w", 0), DeviceParam::pointer("x", 1), DeviceParam::pointer("y", 2),
                       DeviceParam::u32("n", 32)};
    k.kernel.accesses = {{0, false, true, DeviceAccess::Means::kGeneric},
                         {1, false, false, DeviceAccess::Means::kGeneric},
                         {2, true, false, DeviceAccess::Means::kGeneric}};
    plan.kernels.push_back(k);
    const std::vector<SourceHeader> headers{{"demo.cuh", kKernels}};
    CompileOptions options;
    options.headers = headers;
    options.use_cache = false;
    const std::vector<KernelRequest> requests{kernel_request(k.kernel, k.wait)};
    const auto compiled = compile_kernels(requests, options);
    EXPECT_TRUE(compiled) << compiled.error().to_string() << compiled.error().details;
    if (!compiled) return {};
    auto found = check_code(plan, *compiled);
    EXPECT_TRUE(found) << found.error().to_string();
    return found ? *found : std::vector<CodeFinding>{};
  }
};

TEST_F(CheckCode, SoundCodeHasNoFindings) { EXPECT_THAT(findings(0), IsEmpty()); }

TEST_F(CheckCode, FaultsAreNamed) {
  const auto no_wait = findings(1);
  ASSERT_EQ(no_wait.size(), 1U);
  EXPECT_EQ(no_wait[0].rule, "attr_without_wait_in_binary");
  EXPECT_EQ(no_wait[0].verdict, CodeVerdict::kBroken);
  EXPECT_THAT(no_wait[0].message, HasSubstr("'A0'"));

  const auto early_read = findings(2);
  ASSERT_EQ(early_read.size(), 1U);
  EXPECT_EQ(early_read[0].rule, "read_before_wait");
  EXPECT_EQ(early_read[0].verdict, CodeVerdict::kBroken);
  EXPECT_THAT(early_read[0].message, HasSubstr("'x'"));

  const auto late = findings(3);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].rule, "late_weights");
  EXPECT_EQ(late[0].verdict, CodeVerdict::kLostTime);
  EXPECT_THAT(late[0].message, HasSubstr("'w'"));

  const auto no_trigger = findings(4);
  ASSERT_EQ(no_trigger.size(), 1U);
  EXPECT_EQ(no_trigger[0].rule, "missing_trigger");
}

TEST_F(CheckCode, BehindFullEdgesNothingIsEarly) { EXPECT_THAT(findings(2, false), IsEmpty()); }

}  // namespace
}  // namespace megartp::codegen
