// For tests of plans: graphs of `add` ops, whose family is always there.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "lowering/lower.h"
#include "plan/kernel_plan.h"

namespace megartp::testing {

// `layers` adds in a chain over [M, 64]: y_i = y_{i-1} + b, the last one an output.
inline OpGraph add_chain(int layers) {
  OpGraph graph("chain");
  Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 64});
  const Tensor b = graph.runtime_arg("b", DType::kBF16, {"M", 64});
  for (int i = 0; i < layers; ++i) x = graph.add(x, b, "add" + std::to_string(i));
  graph.set_outputs({x});
  return graph;
}

inline ShapeEnv rows(int64_t m) {
  ShapeEnv shapes;
  shapes.set("M", m);
  shapes.requests.push_back({static_cast<int32_t>(m), 100});
  return shapes;
}

inline TaskGraph lowered_chain(int layers, int64_t m) {
  auto tasks = lower(add_chain(layers), rows(m));
  EXPECT_TRUE(tasks) << (tasks ? "" : tasks.error().to_string());
  return std::move(*tasks);
}

inline KernelPlan packed_chain(int layers, int64_t m, uint32_t workers, Packer packer = Packer::kRoundRobin) {
  const TaskGraph tasks = lowered_chain(layers, m);
  auto plan = pack(tasks, *find_target("cpu"), {packer, workers});
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().to_string());
  return std::move(*plan);
}

}  // namespace megartp::testing
