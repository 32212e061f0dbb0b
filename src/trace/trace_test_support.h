// For tests of traces: a small trace by hand, and random ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trace/trace.h"

namespace megartp::trace::testing {

//   lane 0   ..AAAAAAAA-CCCCCC      A 10..100, C 105..200
//   lane 1   ....BBB........DDDDDD  B 20..50, D waits from 55 for e0 (A), runs 110..290
//   run 0..300
inline Trace two_lanes() {
  Trace t;
  t.meta.name = "test";
  t.meta.backend = "cpu-threads";
  t.meta.graph = "graph";
  t.meta.machine = "a machine, \"quoted\" <&>";
  t.meta.schedule = "static";
  t.meta.shapes = {{"M", 16}, {"KV", 8192}};
  t.meta.clock_domain = "steady_clock";
  t.meta.clock_resolution_ns = 27;
  t.meta.span_ns = 300;
  t.lanes = {{"worker 0", 0}, {"worker 1", 1}};
  t.ops = {{"A0", "add"}, {"B0.gemm", "gemm"}};
  t.texts = {"m 0..16", "m 0..16, n 0..128"};
  t.tasks = {
      {.id = 0, .lane = 0, .position = 0, .op = 0, .tile = 0, .visible_ns = 5, .ready_ns = 10, .done_ns = 100},
      {.id = 2, .lane = 0, .position = 1, .op = 1, .tile = 1, .visible_ns = 104, .ready_ns = 105, .done_ns = 200},
      {.id = 1, .lane = 1, .position = 0, .op = 0, .tile = 0, .visible_ns = 15, .ready_ns = 20, .done_ns = 50},
      {.id = 3, .lane = 1, .position = 2, .op = 1, .tile = 1, .visible_ns = 55, .ready_ns = 110, .done_ns = 290}};
  t.events = {{"e0 A0", {{0, 1}}, {{3, 1}}}, {"e1 A0", {{2, 2}}, {}}};
  return t;
}

// A sound run of `num_tasks` tasks on up to four lanes: some wait for events that several tasks signal.
inline Trace random_trace(uint64_t seed, uint32_t num_tasks) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t n) { return static_cast<uint32_t>(random() % n); };
  Trace t = two_lanes();
  const uint32_t num_lanes = 1 + below(4);
  t.lanes.clear();
  for (uint32_t w = 0; w < num_lanes; ++w) t.lanes.push_back({fmt::format("worker {}", w), w});
  t.tasks.clear();
  t.events.clear();
  std::vector<uint64_t> free(num_lanes);
  std::vector<uint32_t> positions(num_lanes);
  std::vector<uint64_t> done_of;
  std::vector<std::vector<uint32_t>> needs;
  for (uint32_t i = 0; i < num_tasks; ++i) {
    const uint32_t w = below(num_lanes);
    TraceTask task{.id = i, .lane = w, .position = positions[w]++, .op = below(2), .tile = below(2)};
    uint64_t met = free[w] + below(5);
    task.visible_ns = met;
    needs.emplace_back();
    if (i > 0 && below(3) != 0)
      for (uint32_t k = 1 + below(3); k > 0; --k) {
        const uint32_t need = below(i);
        if (std::ranges::find(needs[i], need) == needs[i].end()) needs[i].push_back(need);
        met = std::max(met, done_of[need]);
      }
    task.ready_ns = met + below(7);
    task.done_ns = task.ready_ns + below(100);
    task.weight_bytes = below(1000);
    free[w] = task.done_ns;
    done_of.push_back(task.done_ns);
    t.tasks.push_back(task);
  }
  t.meta.span_ns = std::ranges::max(free) + below(50);
  std::ranges::sort(t.tasks, {}, [](const TraceTask& task) { return std::pair(task.lane, task.position); });
  std::vector<uint32_t> index_of(num_tasks);
  for (uint32_t i = 0; i < num_tasks; ++i) index_of[t.tasks[i].id] = i;
  for (uint32_t i = 0; i < num_tasks; ++i) {
    if (needs[i].empty()) continue;
    TraceEvent event{fmt::format("e{}", i), {}, {}};
    uint32_t total = 0;
    for (const uint32_t need : needs[i]) event.signals.push_back({index_of[need], 1 + need % 3}), total += 1 + need % 3;
    std::ranges::sort(event.signals, {}, &EventSignal::task);
    event.waits.push_back({index_of[i], total});
    t.events.push_back(std::move(event));
  }
  return t;
}

}  // namespace megartp::trace::testing
