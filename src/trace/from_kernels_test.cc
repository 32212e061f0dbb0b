#include "trace/from_kernels.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/glm52/glm52.h"
#include "trace/analysis.h"
#include "trace/what_if.h"

namespace megartp::trace {
namespace {

using ::testing::HasSubstr;

// Attention-pre as a CUDA graph, with the real device families: nine kernels.
LaunchPlan layer_plan(LaunchMode mode) {
  const OpGraph graph = glm52::attention_pre_graph(glm52::glm_5_2_config(), {}, 6);
  LaunchOptions options;
  options.mode = mode;
  auto plan = build_launch_plan(graph, *glm52::decode_shapes(16, 8192, 2), options);
  EXPECT_TRUE(plan) << plan.error().to_string();
  return std::move(*plan);
}

uint32_t grid_of(const LaunchPlan& plan, uint32_t k) {
  const auto& g = plan.kernels[k].kernel.grid;
  return g[0] * g[1] * g[2];
}

// Kernel k runs from 1000 * k; its CTAs enter 700 before the one before it ends, on 132 SMs, and get their inputs then.
RawTrace chain_of_ctas(const LaunchPlan& plan) {
  RawTrace raw;
  raw.clock_domain = "%globaltimer";
  raw.resolution_ns = 32;
  raw.begin = 5000;
  for (uint32_t k = 0; k < plan.kernels.size(); ++k)
    for (uint32_t cta = 0; cta < grid_of(plan, k); ++cta) {
      const uint64_t inputs = 6000 + 1000 * uint64_t{k} + 20;
      raw.ctas.push_back({inputs - (k == 0 ? 20 : 700), inputs, inputs + 900 + cta % 80, cta % 132, cta, {}});
    }
  raw.end = 6000 + 1000 * plan.kernels.size() + 100;
  return raw;
}

TEST(TraceOfLaunch, HasALaneForEveryCtaThatAnSmHeldAtOnce) {
  const LaunchPlan plan = layer_plan(LaunchMode::kPdl);
  const RawTrace raw = chain_of_ctas(plan);
  const auto trace = trace_of_launch(plan, raw, {});
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->meta.backend, "pdl");
  EXPECT_EQ(trace->meta.num_lost, 0U);
  EXPECT_EQ(trace->tasks.size(), raw.ctas.size());
  EXPECT_EQ(trace->ops.size(), plan.kernels.size());
  EXPECT_EQ(trace->kernel_edges.size(), plan.edges.size());
  EXPECT_EQ(trace->lanes[0].name, "SM 0");
  EXPECT_EQ(trace->lanes[1].name, "SM 0 (2)");
  for (size_t i = 1; i < trace->tasks.size(); ++i)
    if (trace->tasks[i].lane == trace->tasks[i - 1].lane) {
      EXPECT_LE(trace->tasks[i - 1].done_ns, trace->tasks[i].visible_ns);
    }
  uint64_t bytes = 0;
  for (const TraceTask& task : trace->tasks) bytes += task.weight_bytes + task.other_bytes;
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(plan.num_bytes()),
              0.001 * static_cast<double>(plan.num_bytes()));
}

TEST(TraceOfLaunch, TheCriticalPathGoesThroughTheKernels) {
  const LaunchPlan plan = layer_plan(LaunchMode::kPdl);
  const auto trace = trace_of_launch(plan, chain_of_ctas(plan), {});
  ASSERT_TRUE(trace) << trace.error().to_string();
  const Analysis a = analyse(*trace);
  EXPECT_EQ(a.critical_ns(), trace->meta.span_ns);
  std::vector<uint32_t> ops;
  for (const CriticalLink& link : a.critical)
    if (ops.empty() || ops.back() != trace->tasks[link.task].op) ops.push_back(trace->tasks[link.task].op);
  std::vector<uint32_t> all(plan.kernels.size());
  for (uint32_t k = 0; k < all.size(); ++k) all[k] = k;
  EXPECT_EQ(ops, all);
  EXPECT_GT(a.link_ns[static_cast<size_t>(LinkKind::kWait)], 0U);  // they entered early
  EXPECT_EQ(a.num_units, 132U);
}

TEST(TraceOfLaunch, AKernelThatComesLaterWasLaunched) {
  const LaunchPlan plan = layer_plan(LaunchMode::kSerial);
  RawTrace raw = chain_of_ctas(plan);
  for (abi::KernelTraceRecord& r : raw.ctas) r.enter = r.inputs - 5;
  const auto trace = trace_of_launch(plan, raw, {});
  ASSERT_TRUE(trace) << trace.error().to_string();
  const Analysis a = analyse(*trace);
  EXPECT_EQ(a.link_ns[static_cast<size_t>(LinkKind::kWait)], 0U);
  EXPECT_GT(a.link_ns[static_cast<size_t>(LinkKind::kLaunch)], 0U);
}

TEST(TraceOfLaunch, RefusesRecordsThatCannotBe) {
  const LaunchPlan plan = layer_plan(LaunchMode::kDag);
  const auto error_of = [&plan](auto change) {
    RawTrace raw = chain_of_ctas(plan);
    change(raw);
    const auto trace = trace_of_launch(plan, raw, {});
    return trace ? std::string("accepted") : trace.error().message;
  };
  EXPECT_EQ(error_of([](RawTrace&) {}), "accepted");
  EXPECT_THAT(error_of([](RawTrace& r) { r.ctas.pop_back(); }), HasSubstr("for a plan of"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.ctas[1].cta = 0; }), HasSubstr("CTA 1 of A0 has the record of CTA 0"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.ctas[0].enter = 0; }), HasSubstr("enter 0"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.ctas[0].inputs = 1; }), HasSubstr("inputs 1"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.ctas[0].done = r.end + 1; }), HasSubstr("in a run from"));
  EXPECT_THAT(error_of([](RawTrace& r) { r.roles.push_back({99, 0, abi::kTraceRoleWeights, 0, 6000, 6010}); }),
              HasSubstr("kernel 99"));
  EXPECT_THAT(error_of([](RawTrace& r) {
                for (abi::KernelTraceRecord& c : r.ctas) c.done = 0;
              }),
              HasSubstr("none"));
}

TEST(TraceOfLaunch, CountsCtasWithoutARecord) {
  const LaunchPlan plan = layer_plan(LaunchMode::kDag);
  RawTrace raw = chain_of_ctas(plan);
  for (size_t i = 0; i < 10; ++i) raw.ctas[i] = {};
  const auto trace = trace_of_launch(plan, raw, {});
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->meta.num_lost, 10U);
  EXPECT_EQ(trace->tasks.size(), raw.ctas.size() - 10);
}

TEST(TraceOfLaunch, WhatNeverWaitedHasItsInputsWhenItEnters) {
  const LaunchPlan plan = layer_plan(LaunchMode::kDag);
  RawTrace raw = chain_of_ctas(plan);
  raw.ctas[0].inputs = 0;
  const auto trace = trace_of_launch(plan, raw, {});
  ASSERT_TRUE(trace) << trace.error().to_string();
  const auto first = std::ranges::find_if(trace->tasks, [](const TraceTask& t) { return t.op == 0 && t.id == 0; });
  ASSERT_NE(first, trace->tasks.end());
  EXPECT_EQ(first->ready_ns, first->visible_ns);
}

TEST(TraceOfLaunchSimulation, SaysWhatTheSimulatorSays) {
  for (const LaunchMode mode : {LaunchMode::kSerial, LaunchMode::kPdl, LaunchMode::kDag, LaunchMode::kCmp}) {
    const LaunchPlan plan = layer_plan(mode);
    const auto result = simulate_launch(plan, *find_launch_costs("h200"));
    ASSERT_TRUE(result) << result.error().to_string();
    const auto trace = trace_of_simulation(plan, *result, {});
    ASSERT_TRUE(trace) << trace.error().to_string();
    EXPECT_EQ(trace->meta.backend, "simulated");
    EXPECT_EQ(trace->meta.span_ns, result->span_ns);
    EXPECT_DOUBLE_EQ(trace->meta.timed_ns, result->timed_us * 1e3);
    EXPECT_EQ(trace->roles.size(), result->parts.size());
    const Analysis a = analyse(*trace);
    EXPECT_EQ(a.critical_ns(), result->span_ns);
    // A change is judged by a replay; of no change it must be the run, or nearly so.
    const auto replay = what_if(*trace, {});
    ASSERT_TRUE(replay) << replay.error().to_string();
    EXPECT_LT(std::abs(replay->replay_error()), 0.1) << to_string(mode);
  }
}

}  // namespace
}  // namespace megartp::trace
