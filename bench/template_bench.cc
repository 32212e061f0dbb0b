// Time of making the plan of a new shape out of a template, next to lowering and packing it afresh; attention-pre of
// GLM-5.2, template for M = 32, KV = 16384, two requests, 148 queues.
//
//   taskset -c 0 build/release/bench/template_bench
//
// BM_NewM and BM_NewKv alternate between two shapes, so every iteration rewrites the plan (732 tasks at M = 16, KV =
// 8192). BM_NewPosition walks 1024 consecutive positions of both requests from 7000 on; median_us and worst_us are over
// positions, at whose 512-key boundaries tiles come and the plan is rewritten. Limits: 50 us for a new M or KV, 5 us
// for a new position (median).
#include <algorithm>
#include <chrono>
#include <vector>

#include <benchmark/benchmark.h>

#include "models/glm52/glm52.h"
#include "plan/plan_template.h"

namespace megartp {
namespace {

struct Setup {
  OpGraph graph = glm52::attention_pre_graph(glm52::glm_5_2_config(), {}, 6);
  TargetDesc target = *find_target("b300");
  PackOptions packing{Packer::kCriticalPath, 148};
  PlanTemplate made = *PlanTemplate::make(graph, *glm52::decode_shapes(32, 16384, 2), {}, target, packing);
};
const Setup& setup() {
  static const Setup s;
  return s;
}

void alternate(benchmark::State& state, const ShapeEnv& a, const ShapeEnv& b) {
  PlanInstance instance = setup().made.instance();
  bool first = true;
  uint32_t tasks = 0;
  for (auto _ : state) {
    const auto done = instance.instantiate(first ? a : b);
    if (!done || *done != Replan::kRewrite) return state.SkipWithError("not rewritten");
    if (first) tasks = instance.plan().num_tasks;
    first = !first;
  }
  if (const Status ok = check_plan(instance.plan()); !ok) state.SkipWithError(ok.error().to_string().c_str());
  state.counters["tasks"] = tasks;
}

void BM_NewM(benchmark::State& state) {
  alternate(state, *glm52::decode_shapes(16, 8192, 2), *glm52::decode_shapes(13, 8192, 2));
}
void BM_NewKv(benchmark::State& state) {
  alternate(state, *glm52::decode_shapes(16, 8192, 2), *glm52::decode_shapes(16, 8000, 2));
}
// The largest shape and one row of one request: everything changes.
void BM_NewMAndKv(benchmark::State& state) {
  alternate(state, *glm52::decode_shapes(16, 8192, 2), *glm52::decode_shapes(1, 300, 1));
}
BENCHMARK(BM_NewM)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_NewKv)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_NewMAndKv)->Unit(benchmark::kMicrosecond);

void BM_NewPosition(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  constexpr int32_t kPositions = 1024;
  PlanInstance instance = setup().made.instance();
  // Tensors stay as they are; the requests grow.
  ShapeEnv shapes = *glm52::decode_shapes(16, 8192, 2);
  std::vector<double> least(kPositions, 1e9);  // by position, of all walks: interruptions drop out
  double rewrites = 0;
  for (auto _ : state) {
    for (RequestShape& r : shapes.requests) r.kv_len = 6999;
    if (!instance.instantiate(shapes)) return state.SkipWithError("does not fit");
    rewrites = 0;
    for (int32_t p = 0; p < kPositions; ++p) {
      for (RequestShape& r : shapes.requests) r.kv_len = 7000 + p;
      const auto start = Clock::now();
      const auto done = instance.instantiate(shapes);
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      if (!done) return state.SkipWithError("does not fit");
      rewrites += *done == Replan::kRewrite ? 1 : 0;
      least[static_cast<size_t>(p)] = std::min(least[static_cast<size_t>(p)], us);
    }
  }
  std::ranges::sort(least);
  state.counters["median_us"] = least[kPositions / 2];
  state.counters["worst_us"] = least.back();
  state.counters["rewrites"] = rewrites;
  state.SetItemsProcessed(state.iterations() * kPositions);
}
BENCHMARK(BM_NewPosition)->Unit(benchmark::kMicrosecond);

void BM_LowerAndPack(benchmark::State& state) {
  const auto shapes = glm52::decode_shapes(16, 8192, 2);
  for (auto _ : state) {
    const auto tasks = lower(setup().graph, *shapes);
    const auto plan = pack(*tasks, setup().target, setup().packing);
    benchmark::DoNotOptimize(plan->instructions.data());
  }
}
BENCHMARK(BM_LowerAndPack)->Unit(benchmark::kMicrosecond);

// Once for all shapes.
void BM_MakeTemplate(benchmark::State& state) {
  const auto largest = glm52::decode_shapes(32, 16384, 2);
  for (auto _ : state)
    benchmark::DoNotOptimize(PlanTemplate::make(setup().graph, *largest, {}, setup().target, setup().packing));
}
BENCHMARK(BM_MakeTemplate)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace megartp

BENCHMARK_MAIN();
