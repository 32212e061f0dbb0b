// Time of the event compiler by mode on Qwen3-8B's task graph at MPK's Hopper grids (17,730 tasks): expand, derive,
// fit.
//
//   taskset -c 0 build/release/bench/event_compiler_bench
//
// Limit: 50 ms in exact mode. The counters say what the mode made of the graph: events, relays, and live edges by
// granularity.
#include <benchmark/benchmark.h>

#include "lowering/explain.h"
#include "partition/partition_graph.h"
#include "support/qwen3_partition.h"

namespace megartp {
namespace {

void BM_Qwen3(benchmark::State& state) {
  const PartitionGraph graph = test::qwen3_8b({.tokens = 8, .requests = 1, .layers = state.range(1)});
  EventOptions options;
  options.mode = static_cast<EventMode>(state.range(0));
  Result<TaskGraph> tasks = lower_partition_graph(graph, options);
  for (auto _ : state) {
    tasks = lower_partition_graph(graph, options);
    if (!tasks) return state.SkipWithError(tasks.error().to_string().c_str());
    benchmark::DoNotOptimize(tasks->tasks.data());
  }
  const lowering::GraphExplanation e = lowering::explain_edges(*tasks);
  state.SetLabel(std::string(to_string(options.mode)));
  state.counters["tasks"] = static_cast<double>(tasks->tasks.size());
  state.counters["events"] = static_cast<double>(e.num_events);
  state.counters["barriers"] = e.num_barriers;
  state.counters["grouped"] = e.num_groups;
  state.counters["per_tile"] = e.num_per_tile;
  state.counters["implied"] = e.num_implied;
  state.counters["pairs_per_event"] = e.pairs_per_event;
}
// Whole model in every mode; 2117 layers make a million tasks.
BENCHMARK(BM_Qwen3)->Args({0, 36})->Args({1, 36})->Args({2, 36})->Args({3, 36})->Args({0, 2117})->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace megartp

BENCHMARK_MAIN();
