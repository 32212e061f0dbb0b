#include "lowering/explain.h"

#include <gtest/gtest.h>

#include "lowering/hand_graph.h"

namespace megartp::lowering {
namespace {

using testing::BoxTile;
using testing::HandGraph;
using testing::task_range;

StageEdge edge_with(uint32_t producer, uint32_t consumer, std::vector<EventShape> events) {
  StageEdge edge;
  edge.producer_stage = producer;
  edge.consumer_stage = consumer;
  edge.tensor = 0;
  for (const EventShape& e : events) edge.num_events += e.count;
  edge.events = std::move(events);
  return edge;
}

TEST(Explain, GranularityFollowsTheShapesOfEvents) {
  HandGraph g;
  g.add_stage("P", 8);
  g.add_stage("C", 64);
  const std::vector<std::pair<std::vector<EventShape>, std::string>> cases = {
      {{{8, 64, 1}}, "barrier"},              // the whole producer
      {{{4, 64, 1}}, "1 group"},              // one event, but over half of it
      {{{4, 8, 2}}, "2 groups"},              //
      {{{2, 1, 64}}, "per tile"},             // each consumer on its own
      {{{1, 8, 8}}, "per tile"},              // each producer on its own
      {{{1, 8, 4}, {2, 1, 5}}, "per tile"},   // mixed, still exact
      {{{1, 8, 4}, {2, 2, 5}}, "9 groups"}};  // some shared
  for (const auto& [events, expected] : cases) {
    g.tasks.edges = {edge_with(0, 1, events)};
    EXPECT_EQ(granularity_text(explain_edges(g.tasks).edges[0]), expected) << events_text(g.tasks.edges[0]);
  }
}

TEST(Explain, UnitsOfAFusedStageAreItsFinalTiles) {
  HandGraph g;
  g.add_stage("P", 84);
  g.add_stage("C", 2);
  Stage& fused = *g.tasks.stages[0].stage;
  fused.num_join_groups = 1;
  fused.num_final_tiles = 16;
  g.tasks.edges = {edge_with(0, 1, {{16, 2, 1}})};
  EXPECT_EQ(explain_edges(g.tasks).num_barriers, 1U);
  g.tasks.edges = {edge_with(0, 1, {{8, 1, 2}})};
  EXPECT_EQ(explain_edges(g.tasks).num_per_tile, 1U);
}

TEST(Explain, TheSummaryCountsLiveEdgesAndPairs) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 4);
  const uint32_t b = g.add_stage("B", 2);
  const uint32_t c = g.add_stage("C", 3);
  g.add_event({a, a + 1}, {b});
  g.add_event({a + 2, a + 3}, {b + 1});
  g.add_event(task_range(b, 2), task_range(c, 3));
  g.tasks.edges = {edge_with(0, 1, {{2, 1, 2}}), edge_with(1, 2, {{2, 3, 1}}), edge_with(0, 2, {})};
  g.tasks.edges[2].is_implied = true;
  const GraphExplanation e = explain_edges(g.tasks);
  EXPECT_EQ(e.num_per_tile, 1U);
  EXPECT_EQ(e.num_barriers, 1U);
  EXPECT_EQ(e.num_groups, 0U);
  EXPECT_EQ(e.num_implied, 1U);
  EXPECT_EQ(granularity_text(e.edges[2]), "implied");
  EXPECT_EQ(e.num_events, 3U);
  EXPECT_EQ(e.num_task_pairs, 2U + 2U + 6U);
  EXPECT_DOUBLE_EQ(e.pairs_per_event, 10.0 / 3);
}

TEST(Explain, TextsNameHazardsAndEvents) {
  StageEdge edge = edge_with(0, 1, {{16, 1, 8}, {4, 1, 1}});
  EXPECT_EQ(events_text(edge), "16->1 x8, 4->1");
  EXPECT_EQ(events_text(StageEdge{}), "-");
  edge.hazard = HazardKind::kWar;
  EXPECT_EQ(hazards_text(edge), "war");
  edge.hazards = 1U << static_cast<uint32_t>(HazardKind::kRaw) | 1U << static_cast<uint32_t>(HazardKind::kWaw);
  EXPECT_EQ(hazards_text(edge), "raw+waw");
  EXPECT_EQ(events_text(edge_with(0, 1, {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {5, 1, 1}})),
            "1->1, 2->1, 3->1, 4->1, ... (5 shapes)");
}

}  // namespace
}  // namespace megartp::lowering
