// Time of proving a plan: one layer of attention-pre (732 tasks), 78 layers (57,096), 137 layers (100,284).
//
//   taskset -c 0 build/release/bench/prover_bench
//
// Limits: 5 ms for one layer, 1 s for 100,000 tasks. `gate` is what preparing a plan costs that was proved before.
#include <map>
#include <memory>

#include <benchmark/benchmark.h>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

const KernelPlan& plan_of(int64_t num_layers) {
  static std::map<int64_t, std::unique_ptr<KernelPlan>> cache;
  auto& plan = cache[num_layers];
  if (!plan) {
    glm52::Config config;
    config.index_topk_freq = 1;
    config.num_hidden_layers = num_layers;
    const OpGraph graph = glm52::attention_pre_graph(config, {}, 0, num_layers);
    const auto tasks = lower(graph, glm52::decode_shapes(16, 8192, 2).value());
    plan = std::make_unique<KernelPlan>(pack(tasks.value(), find_target("h200").value()).value());
  }
  return *plan;
}

void prove(benchmark::State& state) {
  const KernelPlan& plan = plan_of(state.range(0));
  for (auto _ : state) {
    const PlanProof proof = prove_plan(plan);
    if (!proof.is_proved()) state.SkipWithError(proof.findings[0].message.c_str());
    benchmark::DoNotOptimize(proof);
  }
  state.counters["tasks"] = plan.num_tasks;
  state.counters["ns_per_task"] = benchmark::Counter(
      plan.num_tasks * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(prove)->Arg(1)->Arg(78)->Arg(137)->Unit(benchmark::kMillisecond);

void gate(benchmark::State& state) {
  const KernelPlan& plan = plan_of(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(require_proved(plan));
}
BENCHMARK(gate)->Arg(1)->Arg(78)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace megartp

BENCHMARK_MAIN();
