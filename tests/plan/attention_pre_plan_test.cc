// The published counts of attention-pre at M = 16, KV = 8192, two requests, and plans of other sizes.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "plan/kernel_plan.h"
#include "plan/plan_json.h"

namespace megartp {
namespace {

TaskGraph lowered(int64_t m, int64_t kv, int64_t requests, FinalizerMode mode, const glm52::Config& config = {},
                  int64_t num_layers = 1) {
  const OpGraph graph = glm52::attention_pre_graph(config, {}, 6, num_layers);
  const auto shapes = glm52::decode_shapes(m, kv, requests);
  EXPECT_TRUE(shapes) << shapes.error().to_string();
  auto tasks = lower(graph, *shapes, {mode});
  EXPECT_TRUE(tasks) << tasks.error().to_string();
  return std::move(*tasks);
}

std::map<std::string, uint32_t> tasks_per_op(const TaskGraph& g) {
  std::map<std::string, uint32_t> counts;
  for (const TaskStage& s : g.stages) counts[g.op_names[s.op]] += s.stage->num_tiles;
  return counts;
}

// For each op, the events that its tasks wait for as "producer op p<publication> >=threshold", which must be the same
// for all.
std::string waits_of(const TaskGraph& g, uint32_t task) {
  std::string text;
  for (uint32_t w = 0; w < g.tasks[task].num_waits; ++w) {
    const Event& e = g.events[g.tasks[task].waits[w].event];
    text += (text.empty() ? "" : ", ") + g.op_names[g.stages[e.producer_stage].op] + ">=" + std::to_string(e.threshold);
  }
  return text;
}

TEST(AttentionPrePlan, FusedHas732TasksAnd70Events) {
  const TaskGraph g = lowered(16, 8192, 2, FinalizerMode::kFused);
  EXPECT_EQ(g.tasks.size(), 732U);
  EXPECT_EQ(tasks_per_op(g),
            (std::map<std::string, uint32_t>{
                {"A0", 16}, {"B0", 84}, {"C0", 48}, {"B1", 8}, {"D1", 128}, {"D0", 128}, {"D2", 256}, {"E1", 64}}));
  ASSERT_EQ(g.events.size(), 70U);
  const std::map<std::string, std::string> expected{{"A0", ""},       {"B0", "A0>=16"}, {"C0", "A0>=16"},
                                                    {"B1", "A0>=16"}, {"D0", "B0>=16"}, {"D1", "B0>=16, C0>=48"},
                                                    {"D2", "D0>=2"}};
  for (uint32_t t = 0; t < g.tasks.size(); ++t) {
    const std::string& op = g.op_names[g.stages[g.tasks[t].stage].op];
    if (op == "E1")
      EXPECT_THAT(waits_of(g, t), ::testing::AnyOf("D1>=32, B1>=1", "B1>=1, D1>=32"));
    else
      EXPECT_EQ(waits_of(g, t), expected.at(op)) << op;
  }
  // B0 and B1 share A0's first publication, C0 has the second.
  std::map<std::string, uint32_t> publication;
  for (const Task& t : g.tasks)
    if (t.num_waits == 1) publication[g.op_names[g.stages[t.stage].op]] = g.events[t.waits[0].event].publication;
  EXPECT_EQ(publication["B0"], publication["B1"]);
  EXPECT_NE(publication["B0"], publication["C0"]);
  // D2's 64 events are those of heads: four tiles each.
  uint32_t heads = 0;
  for (const Event& e : g.events)
    if (g.op_names[g.stages[e.producer_stage].op] == "D0") {
      ++heads;
      EXPECT_EQ(e.num_consumers, 4U);
    }
  EXPECT_EQ(heads, 64U);
}

TEST(AttentionPrePlan, QueuesAndOperandTableHaveThePublishedShapes) {
  const TaskGraph g = lowered(16, 8192, 2, FinalizerMode::kFused);
  const auto plan = pack(g, *find_target("b300"), {Packer::kRoundRobin, 148});
  ASSERT_TRUE(plan) << plan.error().to_string();
  ASSERT_TRUE(check_plan(*plan)) << check_plan(*plan).error().to_string();
  const auto json = nlohmann::json::parse(plan_to_json(*plan));
  EXPECT_EQ(json["queue_shape"], nlohmann::json({148, 5, 32}));
  EXPECT_EQ(json["workers_full"], 140);
  EXPECT_EQ(json["noops"], 8);
  EXPECT_EQ(json["operand_table_shape"], nlohmann::json({8, 16}));
  EXPECT_EQ(json["tasks"], 732);
  EXPECT_EQ(json["events"], 70);
  EXPECT_EQ(json["tasks_per_op"]["D1"], 128);
}

struct Size {
  int64_t m, kv, requests;
};
class AttentionPreSizes : public ::testing::TestWithParam<Size> {};

TEST_P(AttentionPreSizes, EveryPlanPassesItsCheck) {
  for (const FinalizerMode mode : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
    const TaskGraph g = lowered(GetParam().m, GetParam().kv, GetParam().requests, mode);
    for (const Packer packer : kPackers) {
      for (const uint32_t workers : {1U, 3U, 132U}) {
        const auto plan = pack(g, *find_target("h200"), {packer, workers});
        ASSERT_TRUE(plan) << plan.error().to_string();
        const Status status = check_plan(*plan);
        EXPECT_TRUE(status) << status.error().to_string();
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, AttentionPreSizes,
                         ::testing::Values(Size{1, 1, 1}, Size{3, 63, 2}, Size{16, 8192, 2}, Size{33, 2049, 5},
                                           Size{128, 65, 4}));

TEST(AttentionPrePlan, TasksModeHasElevenStagesAndFileRoundTrips) {
  const TaskGraph g = lowered(16, 8192, 2, FinalizerMode::kTasks);
  EXPECT_EQ(g.stages.size(), 11U);
  EXPECT_TRUE(g.join_counts.empty());
  bool reduces = false;
  for (const StageEdge& e : g.edges) reduces = reduces || e.policy == EdgePolicy::kTileReduce;
  EXPECT_TRUE(reduces) << "finalizers add the partials of several tiles";
  const auto plan = pack(g, *find_target("h200"), {});
  ASSERT_TRUE(plan);
  const std::string bytes = serialize_plan(*plan);
  const auto read = parse_plan(bytes);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(serialize_plan(*read), bytes);
}

TEST(AttentionPrePlan, LayersFollowOneAnotherRowByRow) {
  glm52::Config config;
  config.index_topk_freq = 1;
  const TaskGraph g = lowered(16, 8192, 2, FinalizerMode::kFused, config, 3);
  EXPECT_EQ(g.tasks.size(), 3 * 732U);
  // The residual links row r of one layer's A0 to row r of the next.
  EXPECT_EQ(g.events.size(), 3 * 70U + 2 * 16U);
  const auto plan = pack(g, *find_target("h200"), {});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(check_plan(*plan));
}

}  // namespace
}  // namespace megartp
