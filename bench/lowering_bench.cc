// Time and memory of lowering and packing: one layer of attention-pre (732 tasks), 78 layers (57,096), 1366 layers
// (999,912).
//
//   taskset -c 0 build/release/bench/lowering_bench
//
// Reports ns_per_task and peak_bytes_per_task (allocations of task graph and plan, temporaries included; the graph
// itself excluded). Limits: 1 ms for one layer, 100 ms for 78, 3 s and 512 bytes a task for 1,000,000.
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>

#include <benchmark/benchmark.h>
#include <malloc.h>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "plan/kernel_plan.h"

namespace {

std::atomic<size_t> g_live_bytes{0};
std::atomic<size_t> g_peak_bytes{0};

void* counted(void* p) {
  if (p == nullptr) std::abort();
  const size_t live = g_live_bytes.fetch_add(malloc_usable_size(p), std::memory_order_relaxed) + malloc_usable_size(p);
  if (live > g_peak_bytes.load(std::memory_order_relaxed)) g_peak_bytes.store(live, std::memory_order_relaxed);
  return p;
}
void release(void* p) {
  if (p != nullptr) g_live_bytes.fetch_sub(malloc_usable_size(p), std::memory_order_relaxed);
  std::free(p);
}

}  // namespace

// Counts what the benchmarked code holds; one thread, so relaxed is enough.
void* operator new(size_t n) { return counted(std::malloc(n)); }
void* operator new(size_t n, std::align_val_t a) {
  const auto align = static_cast<size_t>(a);
  return counted(std::aligned_alloc(align, (n + align - 1) / align * align));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { release(p); }

namespace megartp {
namespace {

// Every layer with its indexer, as layer 6 of GLM-5.2 has it; each with weights and caches of its own.
const OpGraph& layers(int64_t count) {
  static std::map<int64_t, std::unique_ptr<OpGraph>> cache;
  auto& graph = cache[count];
  if (!graph) {
    glm52::Config config;
    config.index_topk_freq = 1;
    config.num_hidden_layers = count;
    graph = std::make_unique<OpGraph>(glm52::attention_pre_graph(config, {}, 0, count));
  }
  return *graph;
}

void lower_and_pack(benchmark::State& state, Packer packer) {
  const OpGraph& graph = layers(state.range(0));
  const auto shapes = glm52::decode_shapes(16, 8192, 2);
  const auto target = find_target("b300");
  if (!graph.status() || !shapes || !target) return state.SkipWithError("the graph could not be made");
  size_t tasks = 0;
  size_t peak = 0;
  for (auto _ : state) {
    const size_t before = g_live_bytes;
    g_peak_bytes = before;
    const auto lowered = lower(graph, *shapes);
    if (!lowered) return state.SkipWithError(lowered.error().to_string().c_str());
    const auto plan = pack(*lowered, *target, {packer, 148});
    if (!plan) return state.SkipWithError(plan.error().to_string().c_str());
    benchmark::DoNotOptimize(plan->instructions.data());
    tasks = plan->num_tasks;
    peak = g_peak_bytes - before;
  }
  const auto per_task = [&](double x) { return x / static_cast<double>(tasks); };
  state.counters["tasks"] = static_cast<double>(tasks);
  state.counters["peak_bytes_per_task"] = per_task(static_cast<double>(peak));
  state.counters["s_per_task"] = benchmark::Counter(
      static_cast<double>(tasks), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_RoundRobin(benchmark::State& state) { lower_and_pack(state, Packer::kRoundRobin); }
void BM_CriticalPath(benchmark::State& state) { lower_and_pack(state, Packer::kCriticalPath); }
void BM_Insertion(benchmark::State& state) { lower_and_pack(state, Packer::kInsertion); }
BENCHMARK(BM_RoundRobin)->Arg(1)->Arg(78)->Arg(1366)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_CriticalPath)->Arg(1)->Arg(78)->Arg(1366)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Insertion)->Arg(1)->Arg(78)->Arg(1366)->Unit(benchmark::kMillisecond);

void BM_CheckPlan(benchmark::State& state) {
  const auto lowered = lower(layers(state.range(0)), *glm52::decode_shapes(16, 8192, 2));
  if (!lowered) return state.SkipWithError(lowered.error().to_string().c_str());
  const auto plan = pack(*lowered, *find_target("b300"), {});
  for (auto _ : state)
    if (!check_plan(*plan)) return state.SkipWithError("the plan does not pass its check");
}
BENCHMARK(BM_CheckPlan)->Arg(1)->Arg(78)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace megartp

BENCHMARK_MAIN();
