#include "lowering/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/box_stage.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;

OpGraph two_adds() {
  OpGraph graph("g");
  const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 64});
  const Tensor y = graph.add(x, x, "first");
  graph.set_outputs({graph.add(y, x, "second")});
  return graph;
}
ShapeEnv with_m(int64_t m) {
  ShapeEnv shapes;
  shapes.set("M", m);
  return shapes;
}

TEST(Lower, KeepsTensorIdsAndNumbersTasksByStage) {
  const OpGraph graph = two_adds();
  const auto tasks = lower(graph, with_m(5));
  ASSERT_TRUE(tasks) << tasks.error().to_string();
  ASSERT_EQ(tasks->tensors.size(), graph.tensors().size());
  for (TensorId t = 0; t < graph.tensors().size(); ++t) {
    EXPECT_EQ(tasks->tensors[t].name, graph.tensor(t).name);
    EXPECT_EQ(tasks->tensors[t].dims, (std::vector<int64_t>{5, 64}));
  }
  ASSERT_EQ(tasks->stages.size(), 2U);
  EXPECT_EQ(tasks->stages[1].first_task, 5U);
  EXPECT_EQ(tasks->stages[1].op, 1U);
  EXPECT_EQ(tasks->op_names, (std::vector<std::string>{"first", "second"}));
  ASSERT_EQ(tasks->tasks.size(), 10U);
  EXPECT_EQ(tasks->tasks[7].stage, 1U);
  EXPECT_EQ(tasks->tasks[7].tile, 2U);
  EXPECT_GT(tasks->tasks[7].bytes, 0.0F);
  EXPECT_EQ(tasks->specs.size(), 1U) << "both adds have the same spec";
  EXPECT_EQ(tasks->events.size(), 5U);
}

TEST(Lower, ImpossibleDimsAreNamed) {
  const auto message = [](int64_t m) {
    const auto tasks = lower(two_adds(), with_m(m));
    if (tasks) return std::string("accepted");
    EXPECT_EQ(tasks.error().code, ErrorCode::kInvalidArgument);
    return tasks.error().to_string();
  };
  EXPECT_THAT(message(0), HasSubstr("tensor 'x' has shape [M, 64] with M = 0"));
  EXPECT_THAT(message(int64_t{1} << 31), HasSubstr("M = 2147483648"));
  EXPECT_THAT(message(-1), HasSubstr("'M'"));
  const auto missing = lower(two_adds(), {});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().to_string(), HasSubstr("symbol 'M' has no value"));
  EXPECT_THAT(missing.error().to_string(), HasSubstr("tensor=x"));
}

TEST(Lower, PassesOnTheGraphsOwnError) {
  OpGraph graph("g");
  const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 64});
  const Tensor y = graph.runtime_arg("y", DType::kBF16, {"M", 32});
  graph.add(x, y);
  const auto tasks = lower(graph, with_m(4));
  ASSERT_FALSE(tasks);
  EXPECT_EQ(tasks.error().to_string(), graph.status().error().to_string());
  EXPECT_FALSE(lower(OpGraph("empty"), {}));
}

TEST(StageAppender, ChecksStagesAndSharesSpecs) {
  TaskGraph graph;
  graph.op_names = {"op"};
  graph.tensors.push_back({"t", DType::kF32, {4}, Storage::kActivation, false});
  lowering::StageAppender appender(graph);
  const auto stage = [] {
    auto s = std::make_unique<lowering::testing::BoxStage>("s", std::vector<lowering::testing::BoxTile>(1));
    s->spec = {1, 2};
    return s;
  };
  ASSERT_TRUE(appender.append(0, stage()));
  ASSERT_TRUE(appender.append(0, stage()));
  auto other = stage();
  other->spec = {1, 3};
  ASSERT_TRUE(appender.append(0, std::move(other)));
  EXPECT_EQ(graph.stages[0].spec_id, graph.stages[1].spec_id);
  EXPECT_NE(graph.stages[0].spec_id, graph.stages[2].spec_id);
  EXPECT_EQ(graph.specs.size(), 2U);

  auto wide = stage();
  wide->slots.assign(17, 0);
  const Status too_wide = appender.append(0, std::move(wide));
  ASSERT_FALSE(too_wide);
  EXPECT_EQ(too_wide.error().code, ErrorCode::kOutOfResources);
  EXPECT_THAT(too_wide.error().message, HasSubstr("17 operands"));
  auto stray = stage();
  stray->slots = {7};
  EXPECT_FALSE(appender.append(0, std::move(stray)));
  auto empty = stage();
  empty->num_tiles = 0;
  EXPECT_FALSE(appender.append(0, std::move(empty)));
}

}  // namespace
}  // namespace megartp
