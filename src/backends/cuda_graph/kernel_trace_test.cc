// Kernel traces of made-up records, and what the tracer asks of a driver that only pretends.
#include "backends/cuda_graph/kernel_trace.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/cuda_plans.h"

namespace megartp::cuda_graph {
namespace {

using megartp::test::FakeDriver;
using megartp::test::FakeModule;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTraceSymbol = "megartp_kernel_trace";

// Two kernels, of 2 and 1 CTAs.
LaunchPlan plan_of_three_ctas() {
  LaunchPlan plan;
  for (const char* name : {"A0", "B0.gemm"}) {
    LaunchKernel k;
    k.name = k.kernel.name = name;
    plan.kernels.push_back(std::move(k));
  }
  plan.kernels[0].kernel.grid = {1, 2, 1};
  plan.kernels[1].kernel.grid = {1, 1, 1};
  return plan;
}
std::vector<abi::KernelTraceRecord> three_records() {
  return {{5000, 5300, 7200, 3, 0, {100, 0, 0, 0}}, {5040, 5300, 7400, 4, 1, {}}, {6000, 0, 9900, 3, 0, {0, 0, 0, 32}}};
}

TEST(KernelTrace, TimesCountFromTheFirstEnter) {
  const auto trace = decode_kernel_trace(plan_of_three_ctas(), three_records());
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->begin_ns, 5000U);
  ASSERT_EQ(trace->kernels.size(), 2U);
  EXPECT_EQ(trace->kernels[0].name, "A0");
  EXPECT_THAT(trace->kernels[0].ctas,
              ElementsAre(CtaRecord{0, 300, 2200, 3, {100, 0, 0, 0}}, CtaRecord{40, 300, 2400, 4, {}}));
  EXPECT_THAT(trace->kernels[1].ctas, ElementsAre(CtaRecord{1000, 1000, 4900, 3, {0, 0, 0, 1032}}))
      << "what waits for nothing has its inputs when it enters";
}

TEST(KernelTrace, SummaryIsFirstToLast) {
  const auto trace = decode_kernel_trace(plan_of_three_ctas(), three_records()).value();
  const std::vector<KernelSummary> list = summarize(trace);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].num_ctas, 2U);
  EXPECT_EQ(list[0].num_sms, 2U);
  EXPECT_EQ(list[0].enter.last_ns, 40U);
  EXPECT_EQ(list[0].inputs.first_ns, 300U);
  EXPECT_EQ(list[0].done.first_ns, 2200U);
  EXPECT_EQ(list[0].done.last_ns, 2400U);
  EXPECT_EQ(to_table(trace),
            "kernel   CTAs  SMs  enter us  inputs ready us     done us\n"
            "A0          2    2       0.0              0.3  2.2 to 2.4\n"
            "B0.gemm     1    1       1.0              1.0         4.9\n");
}

TEST(KernelTrace, CsvHasALineForEveryCta) {
  const auto trace = decode_kernel_trace(plan_of_three_ctas(), three_records()).value();
  EXPECT_EQ(to_csv(trace),
            "kernel,cta,sm,enter_ns,inputs_ns,done_ns,mark0_ns,mark1_ns,mark2_ns,mark3_ns\n"
            "A0,0,3,0,300,2200,100,,,\n"
            "A0,1,4,40,300,2400,,,,\n"
            "B0.gemm,0,3,1000,1000,4900,,,,1032\n");
}

TEST(KernelTrace, OfAPlanWithoutKernels) {
  const auto trace = decode_kernel_trace({}, {});
  ASSERT_TRUE(trace);
  EXPECT_TRUE(summarize(*trace).empty());
}

TEST(KernelTrace, BadRecordsAreNamed) {
  const auto message = [](const std::vector<abi::KernelTraceRecord>& records) {
    const auto trace = decode_kernel_trace(plan_of_three_ctas(), records);
    return trace ? std::string("fine") : trace.error().message;
  };
  auto records = three_records();
  records[1] = {};
  EXPECT_THAT(message(records), HasSubstr("CTA 1 of 'A0' wrote no record"));
  records = three_records();
  std::swap(records[0], records[1]);
  EXPECT_THAT(message(records), HasSubstr("CTA 0 of 'A0' has the record of CTA 1"));
  records = three_records();
  records[2].inputs = records[2].done + 1;
  EXPECT_THAT(message(records), HasSubstr("CTA 0 of 'B0.gemm' entered at 6000, had its inputs at 9901"));
  records.pop_back();
  EXPECT_THAT(message(records), HasSubstr("2 records for a plan of 3 CTAs"));
}

class TracerOnPretendedDriver : public testing::Test {
 protected:
  // All kernels of the small plan as one and the same code.
  Result<KernelTracer> make(bool has_module_per_kernel, bool is_compiled_in = true) {
    auto plan = std::make_shared<const LaunchPlan>(test::small_plan());
    codegen::CompiledKernels compiled = test::pretended_code(fake_, *plan);
    compiled.kernels.resize(1);
    for (uint32_t& index : compiled.index_of_request) index = 0;
    if (is_compiled_in) fake_.global_bytes[kTraceSymbol] = sizeof(abi::KernelTraceTarget);
    auto context = MEGARTP_TRY(cuda::Context::open(fake_.api()));
    code_ = MEGARTP_TRY(LoadedCode::load(std::move(context), *plan, std::move(compiled),
                                         {.has_module_per_kernel = has_module_per_kernel}));
    return KernelTracer::create(plan, code_);
  }
  abi::KernelTraceTarget target(uint32_t kernel) const {
    const auto* module = reinterpret_cast<const FakeModule*>(code_->module(kernel).get());
    abi::KernelTraceTarget t;
    std::memcpy(&t, module->globals.at(kTraceSymbol).data(), sizeof(t));
    return t;
  }

  FakeDriver fake_;
  std::shared_ptr<const LoadedCode> code_;
};

TEST_F(TracerOnPretendedDriver, EveryKernelHasARegionOfOneBuffer) {
  auto tracer = make(true);
  ASSERT_TRUE(tracer) << tracer.error().to_string();
  EXPECT_EQ(fake_.modules.size(), 4U);
  EXPECT_THAT(tracer->read().error().message, HasSubstr("CTA 0 of 'first' wrote no record")) << "cleared";
  constexpr uint32_t kCtas = 14;  // of each
  for (uint32_t k = 0; k < 4; ++k) {
    EXPECT_EQ(target(k).records, target(0).records + uint64_t{k} * kCtas * sizeof(abi::KernelTraceRecord));
    EXPECT_EQ(target(k).num_records, kCtas);
    for (uint32_t cta = 0; cta < kCtas; ++cta)
      reinterpret_cast<abi::KernelTraceRecord*>(target(k).records)[cta] = {100 + k, 200 + k, 300 + k, cta, cta, {}};
  }
  const auto trace = tracer->read();
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->kernels[2].name, "third");
  EXPECT_EQ(trace->kernels[2].ctas[13], (CtaRecord{2, 102, 202, 13, {}}));
  const auto raw = tracer->read_raw();
  ASSERT_TRUE(raw) << raw.error().to_string();
  EXPECT_EQ(raw->ctas.size(), 4U * kCtas);
  EXPECT_EQ(raw->begin, 100U);
  EXPECT_EQ(raw->end, 303U);
  EXPECT_EQ(raw->resolution_ns, 1);
  EXPECT_EQ(raw->clock_domain, "%globaltimer");
  ASSERT_TRUE(tracer->clear());
  EXPECT_FALSE(tracer->read());
}

TEST_F(TracerOnPretendedDriver, CodeThatOutlivesItWritesNothing) {
  {
    ASSERT_TRUE(make(true));
  }
  for (uint32_t k = 0; k < 4; ++k) EXPECT_EQ(target(k).num_records, 0U);
  EXPECT_TRUE(fake_.buffers.empty());
}

TEST_F(TracerOnPretendedDriver, SharedModulesAreRefused) {
  const auto tracer = make(false);
  ASSERT_FALSE(tracer);
  EXPECT_EQ(tracer.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(tracer.error().message, HasSubstr("kernel 'second' shares its module"));
}

TEST_F(TracerOnPretendedDriver, CodeWithoutTheTraceIsRefused) {
  const auto tracer = make(true, false);
  ASSERT_FALSE(tracer);
  EXPECT_EQ(tracer.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(tracer.error().message, HasSubstr("kernel 'first' was compiled without -DMEGARTP_TRACE=1"));
  EXPECT_TRUE(fake_.buffers.empty());
}

}  // namespace
}  // namespace megartp::cuda_graph
