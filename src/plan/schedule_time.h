// What the packers that think in time share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plan/packing.h"

namespace megartp::plan {

using Nanoseconds = uint64_t;  // whole numbers, so that the schedule is the same on every machine

inline Nanoseconds to_ns(double us) { return static_cast<Nanoseconds>(std::llround(std::clamp(us, 0.0, 1e9) * 1e3)); }

// Of each task: the overhead of its op and task_work_us().
std::vector<Nanoseconds> costs_of(const TaskGraph& graph, const TargetDesc& target, uint32_t num_workers);

// For each task the longest path behind it, costs and event latencies.
std::vector<Nanoseconds> tails_of(const TaskGraph& graph, const std::vector<Nanoseconds>& costs, Nanoseconds latency);

// `order`: all tasks, in a topological order.
Schedule to_schedule(const std::vector<uint32_t>& order, const std::vector<uint32_t>& worker_of, uint32_t num_workers);

}  // namespace megartp::plan
