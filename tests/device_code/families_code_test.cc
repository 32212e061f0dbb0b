// The machine code of every kernel that the op families describe, held against its description: nothing that the scan
// refuses or cannot tell, and no weights that come late. The last tests plant faults in the same kernels.
#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/check_code.h"
#include "codegen/embedded_headers.h"
#include "device/shape_table.h"

namespace megartp::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

// Each kernel as if all that it waits for were started programmatically.
void add_kernels(const DeviceCase& c, DeviceWait wait, LaunchPlan& plan, std::set<std::string>& seen) {
  for (const OpInfo& op : c.graph.ops()) {
    const auto kernels = kernels_of(c, op.name);
    ASSERT_TRUE(kernels) << c.name << ": " << kernels.error().to_string();
    for (const DeviceKernel& k : *kernels) {
      if (!seen.insert(k.entry + std::to_string(static_cast<int>(wait))).second) continue;
      LaunchKernel launch;
      launch.kernel = k;
      launch.name = c.name + ", " + k.name;
      launch.wait = wait;
      launch.has_programmatic_in = true;
      plan.kernels.push_back(std::move(launch));
    }
  }
}

class FamiliesCode : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = codegen::Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
    options_.cache_folder = MEGARTP_SHARED_CUBINS;
  }

  std::vector<codegen::CodeFinding> findings(const LaunchPlan& plan) {
    std::vector<codegen::KernelRequest> requests;
    for (const LaunchKernel& k : plan.kernels) requests.push_back(codegen::kernel_request(k.kernel, k.wait));
    const auto compiled = codegen::compile_kernels(requests, options_);
    EXPECT_TRUE(compiled) << compiled.error().to_string() << "\n" << compiled.error().details;
    if (!compiled) return {};
    auto found = codegen::check_code(plan, *compiled);
    EXPECT_TRUE(found) << found.error().to_string();
    return found ? *found : std::vector<codegen::CodeFinding>{};
  }
  static std::vector<std::string> texts(const std::vector<codegen::CodeFinding>& findings) {
    std::vector<std::string> all;
    for (const codegen::CodeFinding& f : findings) all.push_back(f.rule + ": " + f.message);
    return all;
  }

  codegen::CompileOptions options_;
};

TEST_F(FamiliesCode, EveryKernelOfTheShapeTableKeepsItsDescription) {
  LaunchPlan plan;
  std::set<std::string> seen;
  for (const std::vector<DeviceCase>& cases : {layer_cases(), ragged_cases()})
    for (const DeviceCase& c : cases) add_kernels(c, DeviceWait::kPrefetch, plan, seen);
  EXPECT_GT(plan.kernels.size(), 50U);
  EXPECT_THAT(texts(findings(plan)), IsEmpty());
}

TEST_F(FamiliesCode, NothingIsReadEarlyAtTheLowerLevels) {
  LaunchPlan plan;
  std::set<std::string> seen;
  for (const DeviceCase& c : layer_cases()) {
    if (!c.name.starts_with("glm m=16 kv=8192")) continue;
    add_kernels(c, DeviceWait::kEntry, plan, seen);
    add_kernels(c, DeviceWait::kPrologue, plan, seen);
  }
  EXPECT_THAT(texts(findings(plan)), IsEmpty());
}

// A text of a device header replaced by another one that reads a producer's data too early, or its weights too late.
struct Fault {
  std::string name, header, from, to;
  std::string kernel, rule, param;  // of a finding that must be there
};
void PrintTo(const Fault& f, std::ostream* out) { *out << f.name; }

class PlantedFault : public FamiliesCode, public testing::WithParamInterface<Fault> {};

TEST_P(PlantedFault, IsFound) {
  const Fault& fault = GetParam();
  std::string text;
  for (const codegen::SourceHeader& h : codegen::embedded_headers())
    if (h.name == fault.header) text = h.text;
  const size_t at = text.find(fault.from);
  ASSERT_NE(at, std::string::npos) << fault.header << " has no more: " << fault.from;
  text.replace(at, fault.from.size(), fault.to);
  const std::vector<codegen::SourceHeader> headers{{fault.header, text}};
  options_.headers = headers;
  options_.use_cache = false;

  LaunchPlan plan;
  std::set<std::string> seen;
  for (const DeviceCase& c : layer_cases())
    if (c.name.starts_with("glm m=16 kv=8192")) add_kernels(c, DeviceWait::kPrefetch, plan, seen);
  std::erase_if(plan.kernels, [&](const LaunchKernel& k) { return k.kernel.name != fault.kernel; });
  ASSERT_EQ(plan.kernels.size(), 1U);
  const bool is_late = fault.rule == "late_weights";
  const std::vector<codegen::CodeFinding> found = findings(plan);
  EXPECT_THAT(found, Contains(AllOf(Field(&codegen::CodeFinding::rule, fault.rule),
                                    Field(&codegen::CodeFinding::verdict,
                                          is_late ? codegen::CodeVerdict::kLostTime : codegen::CodeVerdict::kBroken),
                                    Field(&codegen::CodeFinding::message, HasSubstr(fault.param + "'")))))
      << testing::PrintToString(texts(found));
}

INSTANTIATE_TEST_SUITE_P(
    RealKernels, PlantedFault,
    testing::Values(Fault{"ScalesWithoutWait", "ops/common/device/fp8_gemm.cuh", "  frame.wait_inputs();\n  // Several",
                          "  // Several", "B0.gemm", "read_before_wait", "x_scale"},
                    Fault{"TileWithoutWait", "ops/common/device/fp8_gemm.cuh", "  frame.wait_inputs();\n  // x was",
                          "  // x was", "D0", "read_before_wait", "x_map"},
                    // One of two pointers, chosen by an index into the parameters.
                    Fault{"WrongScales", "ops/qkv_a/device/qkv_a.cuh", "is_kv ? p.kv_scale : p.q_scale",
                          "is_kv ? p.x_scale : p.q_scale", "B0.gemm", "read_before_wait", "x_scale"},
                    // Under guards.
                    Fault{"EarlyQuery", "ops/q_absorb/device/q_absorb.cuh", "is_there ? p.kv_b_scale[",
                          "is_there ? reinterpret_cast<const float*>(p.q_nope)[", "D2", "read_before_wait", "q_nope"},
                    Fault{"PartialsWithoutWait", "ops/qkv_a/device/qkv_a.cuh", "  frame.wait_inputs();\n  float v[8]",
                          "  float v[8]", "B0.finalize", "attr_without_wait_in_binary", "B0.finalize"},
                    Fault{"ReadOnlyPath", "device/ptx.cuh", "ld.global.L1::no_allocate.v4",
                          "ld.global.nc.L1::no_allocate.v4", "A0", "late_weights", "w"},
                    Fault{"GateAheadOfScales", "ops/indexer_q/device/indexer_q.cuh",
                          "    load_weight_scales(smem, t, threadIdx.x);\n    frame.wait_inputs();\n",
                          "    frame.wait_inputs();\n    load_weight_scales(smem, t, threadIdx.x);\n", "D1",
                          "late_weights", "w_scale"},
                    Fault{"EarlyTrigger", "ops/common/device/split_rows.cuh", "  frame.enter();\n",
                          "  frame.enter();\n  frame.trigger();\n", "D1", "early_trigger", "D1"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace megartp::test
