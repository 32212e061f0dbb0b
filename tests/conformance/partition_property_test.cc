// Random partition graphs in every event mode: nothing is lost, and exact mode waits for nothing that is not needed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "partition/partition_json.h"
#include "support/dependency_oracle.h"

namespace megartp::test {
namespace {

int64_t below(int64_t end) { return *rc::gen::inRange<int64_t>(0, end); }

std::array<int64_t, 3> random_map(int64_t rank) {
  std::array<int64_t, 3> map{};
  for (int64_t& dim : map) dim = below(rank + 1) - 1;
  return map;
}

// Few tensors, so that buffers are reused; grids that do not divide; transposed, replicated and doubled maps.
PartitionGraph random_partition_graph() {
  PartitionGraph g;
  const int64_t num_tensors = 1 + below(4);
  std::vector<int64_t> ranks;
  for (int64_t t = 0; t < num_tensors; ++t) {
    ranks.push_back(1 + below(3));
    PartitionTensor tensor{fmt::format("t{}", t), std::nullopt};
    if (below(3) == 0) {
      tensor.shape.emplace();
      for (int64_t d = 0; d < ranks.back(); ++d) tensor.shape->push_back(1 + below(13));
    }
    g.tensors.push_back(std::move(tensor));
  }
  const auto random_access = [&] {
    const auto t = static_cast<size_t>(below(num_tensors));
    return PartitionAccess{g.tensors[t].name, random_map(ranks[t])};
  };
  for (int64_t i = 2 + below(6); i > 0; --i) {
    PartitionOp op;
    op.name = fmt::format("op{}", g.ops.size());
    op.grid = {1 + below(7), 1 + below(4), below(3) == 0 ? 1 + below(3) : 1};
    for (int64_t n = below(4); n > 0; --n) op.inputs.push_back(random_access());
    for (int64_t n = below(3); n > 0; --n) {
      PartitionAccess out = random_access();
      const auto same = [&](const PartitionAccess& a) { return a.tensor == out.tensor; };
      if (std::ranges::none_of(op.outputs, same)) op.outputs.push_back(std::move(out));
    }
    g.ops.push_back(std::move(op));
  }
  return g;
}

RC_GTEST_PROP(PartitionProperty, NothingIsLostInAnyMode, ()) {
  const PartitionGraph graph = random_partition_graph();
  RC_LOG() << to_json(graph) << "\n";
  for (const EventMode mode : {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole}) {
    const Result<TaskGraph> tasks = lower_partition_graph(graph, {.mode = mode});
    if (!tasks) RC_FAIL(fmt::format("{}: {}", to_string(mode), tasks.error().to_string()));
    const auto problems = dependency_problems(*tasks, {.no_coarser = mode == EventMode::kExact});
    if (!problems.empty()) RC_FAIL(fmt::format("{}: {}", to_string(mode), fmt::join(problems, "\n")));
  }
}

// Instructions of one wait and one signal need relay tasks nearly everywhere.
RC_GTEST_PROP(PartitionProperty, NothingIsLostBehindRelays, ()) {
  const PartitionGraph graph = random_partition_graph();
  RC_LOG() << to_json(graph) << "\n";
  const auto slots = static_cast<uint32_t>(1 + below(3));
  const Result<TaskGraph> tasks = lower_partition_graph(graph, {.max_waits = slots, .max_signals = slots});
  if (!tasks) RC_FAIL(tasks.error().to_string());
  const auto problems = dependency_problems(*tasks, {.no_coarser = true});
  if (!problems.empty()) RC_FAIL(fmt::format("{}", fmt::join(problems, "\n")));
  for (const Task& task : tasks->tasks) {
    if (is_relay(tasks->stages[task.stage])) continue;
    RC_ASSERT(task.num_waits <= slots);
    RC_ASSERT(task.num_signals <= slots);
  }
}

RC_GTEST_PROP(PartitionProperty, JsonReadsBack, ()) {
  const PartitionGraph graph = random_partition_graph();
  const auto again = partition_graph_from_json(to_json(graph));
  RC_ASSERT(again.has_value());
  RC_ASSERT(to_json(*again) == to_json(graph));
}

}  // namespace
}  // namespace megartp::test
