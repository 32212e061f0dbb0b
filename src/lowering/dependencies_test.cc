// Hand-made stages: each case names one rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/box_stage.h"

namespace megartp::lowering {
namespace {

using testing::BoxGraph;
using testing::BoxTile;
using ::testing::HasSubstr;

Access rows(TensorId t, int64_t begin, int64_t end, uint8_t publication = 0) {
  return {t, Box::of({{begin, end}, {0, 64}}), publication, false};
}
Access block(TensorId t, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  return {t, Box::of({{r0, r1}, {c0, c1}}), 0, false};
}

// One tile per row.
std::vector<BoxTile> row_tiles(int64_t n, const std::vector<TensorId>& reads, const std::vector<TensorId>& writes) {
  std::vector<BoxTile> tiles;
  for (int64_t i = 0; i < n; ++i) {
    BoxTile tile;
    for (const TensorId t : reads) tile.reads.push_back(rows(t, i, i + 1));
    for (const TensorId t : writes) tile.writes.push_back(rows(t, i, i + 1));
    tiles.push_back(tile);
  }
  return tiles;
}

const StageEdge& only_edge(const TaskGraph& g) {
  EXPECT_EQ(g.edges.size(), 1U);
  return g.edges.at(0);
}

TEST(Dependencies, EqualTilesGetOneEventEach) {
  BoxGraph g;
  const TensorId a = g.add_tensor({8, 64});
  const TensorId b = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {a}));
  g.add_stage(row_tiles(8, {a}, {b}));
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 8U);
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(g.tasks.events[i].threshold, 1U);
    EXPECT_EQ(g.tasks.events[i].num_consumers, 1U);
    ASSERT_EQ(g.tasks.tasks[8 + i].num_waits, 1);
    EXPECT_EQ(g.tasks.tasks[8 + i].waits[0].event, i);
    EXPECT_EQ(g.tasks.tasks[8 + i].waits[0].threshold, 1U);
    ASSERT_EQ(g.tasks.tasks[i].num_signals, 1);
    EXPECT_EQ(g.tasks.tasks[i].signals[0].event, i);
  }
  EXPECT_EQ(only_edge(g.tasks).policy, EdgePolicy::kTileEqual);
  EXPECT_EQ(only_edge(g.tasks).hazard, HazardKind::kRaw);
  EXPECT_EQ(only_edge(g.tasks).num_events, 8U);
}

TEST(Dependencies, ConsumersOfTheSameUnitsShareAnEvent) {
  BoxGraph g;
  const TensorId a = g.add_tensor({8, 64});
  const TensorId b = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {a}));
  std::vector<BoxTile> column_tiles;
  for (int64_t c = 0; c < 4; ++c)
    column_tiles.push_back({{block(a, 0, 8, c * 16, c * 16 + 16)}, {block(b, 0, 8, c * 16, c * 16 + 16)}});
  g.add_stage(column_tiles);
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].threshold, 8U);
  EXPECT_EQ(g.tasks.events[0].num_consumers, 4U);
  EXPECT_EQ(only_edge(g.tasks).policy, EdgePolicy::kTileCover);
}

TEST(Dependencies, PartialTensorsReduce) {
  BoxGraph g;
  const TensorId a = g.add_tensor({8, 64}, /*is_partial=*/true);
  const TensorId b = g.add_tensor({1, 64});
  g.add_stage(row_tiles(8, {}, {a}));
  g.add_stage({{{rows(a, 0, 8)}, {rows(b, 0, 1)}}});
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(only_edge(g.tasks).policy, EdgePolicy::kTileReduce);
}

TEST(Dependencies, DisjointWritersOfOneTensorAreIndependentAndReadersWaitForBoth) {
  BoxGraph g;
  const TensorId q = g.add_tensor({4, 64}, false, Storage::kOutput);
  const TensorId r = g.add_tensor({4, 64});
  g.add_stage({{{}, {block(q, 0, 4, 48, 64)}}});
  g.add_stage({{{}, {block(q, 0, 4, 0, 48)}}});
  g.add_stage({{{block(q, 0, 4, 0, 64)}, {rows(r, 0, 4)}}});
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.tasks[1].num_waits, 0);
  EXPECT_EQ(g.tasks.tasks[2].num_waits, 2);
  EXPECT_EQ(g.tasks.events.size(), 2U);
}

TEST(Dependencies, AnOperandThatNoTileNamesCountsAsReadWhole) {
  BoxGraph g;
  const TensorId computed_weight = g.add_tensor({4, 64});
  const TensorId argument = g.add_tensor({4, 64}, false, Storage::kRuntimeArg);
  const TensorId out = g.add_tensor({2, 64});
  g.add_stage(row_tiles(4, {}, {computed_weight}));
  g.add_stage(row_tiles(2, {}, {out}));
  g.tasks.stages[1].stage->slots.push_back(computed_weight);
  g.tasks.stages[1].stage->slots.push_back(argument);
  g.add_stage(row_tiles(4, {}, {computed_weight}));  // written again: after the silent readers
  ASSERT_TRUE(g.derive());
  for (const uint32_t reader : {4U, 5U}) {
    ASSERT_EQ(g.tasks.tasks[reader].num_waits, 1) << reader;
    EXPECT_EQ(g.tasks.tasks[reader].waits[0].threshold, 4U) << reader;
  }
  const Task& rewriter = g.tasks.tasks[6];
  bool waits_for_readers = false;
  for (uint32_t i = 0; i < rewriter.num_waits; ++i)
    waits_for_readers = waits_for_readers || g.tasks.events[rewriter.waits[i].event].producer_stage == 1;
  EXPECT_TRUE(waits_for_readers);
}

TEST(Dependencies, StridedRegionsAreListsOfBoxes) {
  // A row a producer; consumers read every second and every third row.
  BoxGraph g;
  const TensorId a = g.add_tensor({12, 64});
  const TensorId b = g.add_tensor({2, 64});
  g.add_stage(row_tiles(12, {}, {a}));
  std::vector<BoxTile> strided(2);
  for (int64_t row = 0; row < 12; row += 2) strided[0].reads.push_back(rows(a, row, row + 1));
  for (int64_t row = 0; row < 12; row += 3) strided[1].reads.push_back(rows(a, row, row + 1));
  for (int64_t i = 0; i < 2; ++i) strided[static_cast<size_t>(i)].writes.push_back(rows(b, i, i + 1));
  g.add_stage(strided);
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 2U);
  EXPECT_EQ(g.tasks.events[0].threshold, 6U);
  EXPECT_EQ(g.tasks.events[1].threshold, 4U);
  for (uint32_t row = 0; row < 12; ++row)
    EXPECT_EQ(g.tasks.tasks[row].num_signals, (row % 2 == 0 ? 1 : 0) + (row % 3 == 0 ? 1 : 0)) << row;
}

TEST(Dependencies, ScatterIsWhole) {
  BoxGraph g;
  const TensorId cache = g.add_tensor({16, 64}, false, Storage::kState);
  const TensorId out = g.add_tensor({4, 64});
  std::vector<BoxTile> writers;
  for (int i = 0; i < 3; ++i) writers.push_back({{}, {{cache, Box::of({{0, 16}, {0, 64}}), 0, true}}});
  g.add_stage(writers);
  g.add_stage({{{rows(cache, 2, 3)}, {rows(out, 0, 4)}}});
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].threshold, 3U);
  EXPECT_EQ(only_edge(g.tasks).policy, EdgePolicy::kWhole);
}

TEST(Dependencies, WritersWaitForEarlierReadersAndThroughThemForWriters) {
  BoxGraph g;
  const TensorId a = g.add_tensor({4, 64});
  const TensorId b = g.add_tensor({4, 64});
  g.add_stage(row_tiles(4, {}, {a}));
  g.add_stage({{{rows(a, 0, 2)}, {rows(b, 0, 2)}}, {{rows(a, 2, 3)}, {rows(b, 2, 4)}}});
  g.add_stage(row_tiles(4, {}, {a}));
  ASSERT_TRUE(g.derive());
  // WAR on the reader of the row, which has waited for its writer; row 3 has no reader, so WAW on its writer.
  for (uint32_t i = 0; i < 4; ++i) {
    const Task& task = g.tasks.tasks[6 + i];
    ASSERT_EQ(task.num_waits, 1);
    EXPECT_EQ(g.tasks.events[task.waits[0].event].producer_stage, i < 3 ? 1U : 0U);
  }
  EXPECT_EQ(g.tasks.edges.size(), 3U);
  for (const StageEdge& edge : g.tasks.edges) EXPECT_FALSE(edge.is_implied);
}

TEST(Dependencies, AWaitThatAnotherImpliesIsDropped) {
  BoxGraph g;
  const TensorId u = g.add_tensor({8, 64});
  const TensorId w = g.add_tensor({8, 64});
  const TensorId v = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {u}));
  g.add_stage(row_tiles(8, {u}, {w}));
  g.add_stage(row_tiles(8, {u, w}, {v}));
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.events.size(), 16U);
  for (uint32_t i = 16; i < 24; ++i) {
    ASSERT_EQ(g.tasks.tasks[i].num_waits, 1);
    EXPECT_EQ(g.tasks.events[g.tasks.tasks[i].waits[0].event].producer_stage, 1U);
  }
  ASSERT_EQ(g.tasks.edges.size(), 3U);
  EXPECT_TRUE(g.tasks.edges[1].is_implied);
  EXPECT_EQ(g.tasks.edges[1].tensor, u);
  EXPECT_TRUE(g.tasks.edges[1].events.empty());
}

TEST(Dependencies, AWiderWaitThanThePathCoversIsKept) {
  BoxGraph g;
  const TensorId u = g.add_tensor({8, 64});
  const TensorId w = g.add_tensor({8, 64});
  const TensorId v = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {u}));
  g.add_stage(row_tiles(8, {u}, {w}));
  auto tiles = row_tiles(8, {w}, {v});
  for (BoxTile& tile : tiles) tile.reads.push_back(rows(u, 0, 8));
  g.add_stage(std::move(tiles));
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.events.size(), 17U);
  for (uint32_t i = 16; i < 24; ++i) EXPECT_EQ(g.tasks.tasks[i].num_waits, 2);
}

TEST(Dependencies, WaitsThatOnlySeveralOthersImplyTogetherAreDropped) {
  BoxGraph g;
  const TensorId u = g.add_tensor({2, 64});
  const TensorId left = g.add_tensor({1, 64});
  const TensorId right = g.add_tensor({1, 64});
  const TensorId out = g.add_tensor({1, 64});
  g.add_stage(row_tiles(2, {}, {u}));
  g.add_stage({{{rows(u, 0, 1)}, {rows(left, 0, 1)}}});
  g.add_stage({{{rows(u, 1, 2)}, {rows(right, 0, 1)}}});
  g.add_stage({{{rows(u, 0, 2), rows(left, 0, 1), rows(right, 0, 1)}, {rows(out, 0, 1)}}});
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.tasks.back().num_waits, 2);
}

TEST(Dependencies, OneEventServesReadAndWriteHazardsOfAPair) {
  BoxGraph g;
  const TensorId a = g.add_tensor({4, 64});
  g.add_stage(row_tiles(4, {}, {a}));
  g.add_stage(row_tiles(4, {a}, {a}));  // in place: RAW and WAW with the same unit
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.events.size(), 4U);
  for (uint32_t i = 4; i < 8; ++i) EXPECT_EQ(g.tasks.tasks[i].num_waits, 1);
  EXPECT_EQ(only_edge(g.tasks).hazard, HazardKind::kRaw);
  EXPECT_EQ(only_edge(g.tasks).hazards, 1U << uint32_t{0} | 1U << 2U);
  EXPECT_EQ(only_edge(g.tasks).events, (std::vector<EventShape>{{1, 1, 4}}));
}

TEST(Dependencies, LongInPlaceChainsWaitForTheLastWriterOnly) {
  BoxGraph g;
  const TensorId a = g.add_tensor({4, 64});
  for (int s = 0; s < 20; ++s) g.add_stage(row_tiles(4, {a}, {a}));
  ASSERT_TRUE(g.derive());
  for (uint32_t i = 4; i < g.tasks.tasks.size(); ++i) {
    ASSERT_EQ(g.tasks.tasks[i].num_waits, 1);
    EXPECT_EQ(g.tasks.events[g.tasks.tasks[i].waits[0].event].producer_stage, g.tasks.tasks[i].stage - 1);
  }
}

TEST(Dependencies, FinalTilesPublishForTheirGroups) {
  BoxGraph g;
  const TensorId partial = g.add_tensor({6, 64}, true);
  const TensorId out = g.add_tensor({4, 64});
  const TensorId sink = g.add_tensor({4, 64});
  // Two groups of three tiles; group 0 has final rows 0..2, group 1 has row 3.
  std::vector<BoxTile> tiles;
  for (uint32_t i = 0; i < 6; ++i) tiles.push_back({{}, {rows(partial, i, i + 1)}, i / 3});
  std::vector<BoxTile> finals;
  for (uint32_t f = 0; f < 4; ++f) finals.push_back({{rows(partial, 0, 6)}, {rows(out, f, f + 1)}, f == 3 ? 1U : 0U});
  g.add_stage(tiles, finals);
  g.add_stage({{{rows(out, 0, 4)}, {rows(sink, 0, 4)}}});
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].threshold, 4U);
  EXPECT_EQ(g.tasks.join_counts, (std::vector<uint32_t>{3, 3}));
  for (uint32_t i = 0; i < 6; ++i) {
    ASSERT_EQ(g.tasks.tasks[i].num_signals, 1);
    EXPECT_EQ(abi::increment(g.tasks.tasks[i].signals[0]), i < 3 ? 3U : 1U);
    EXPECT_EQ(g.tasks.tasks[i].join_group, i / 3);
    EXPECT_EQ(g.tasks.tasks[i].num_waits, 0) << "the group's own partials need no event";
  }
}

TEST(Dependencies, EveryTileOfAGroupWaitsForWhatItsFinalTilesRead) {
  BoxGraph g;
  const TensorId gate = g.add_tensor({3, 64});
  const TensorId out = g.add_tensor({1, 64});
  g.add_stage(row_tiles(3, {}, {gate}));
  g.add_stage({{{}, {}, 0}, {{}, {}, 0}}, {{{rows(gate, 0, 3)}, {rows(out, 0, 1)}, 0}});
  ASSERT_TRUE(g.derive());
  for (uint32_t i = 3; i < 5; ++i) {
    ASSERT_EQ(g.tasks.tasks[i].num_waits, 1);
    EXPECT_EQ(g.tasks.tasks[i].waits[0].threshold, 3U);
  }
}

TEST(Dependencies, PublicationsHaveEventsOfTheirOwn) {
  BoxGraph g;
  const TensorId q = g.add_tensor({4, 64});
  const TensorId y = g.add_tensor({4, 64});
  const TensorId sink = g.add_tensor({4, 64});
  std::vector<BoxTile> tiles;
  for (int64_t i = 0; i < 4; ++i) tiles.push_back({{}, {rows(q, i, i + 1, 0), rows(y, i, i + 1, 1)}});
  g.add_stage(tiles);
  g.add_stage({{{rows(q, 0, 4)}, {rows(sink, 0, 1)}},
               {{rows(y, 0, 4)}, {rows(sink, 1, 2)}},
               {{rows(q, 0, 4), rows(y, 0, 4)}, {rows(sink, 2, 3)}}});
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 2U);
  EXPECT_EQ(g.tasks.events[0].publication, 0U);
  EXPECT_EQ(g.tasks.events[1].publication, 1U);
  ASSERT_EQ(g.tasks.tasks[6].num_waits, 1) << "publication 1 of a unit comes after its publication 0";
  EXPECT_EQ(g.tasks.tasks[6].waits[0].event, 1U);
}

TEST(Dependencies, MoreSignalsThanFitGoThroughRelays) {
  BoxGraph g;
  const TensorId a = g.add_tensor({8, 64});
  const TensorId b = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {a}));
  std::vector<BoxTile> prefixes;  // row 0 would signal eight events
  for (int64_t i = 0; i < 8; ++i) prefixes.push_back({{rows(a, 0, i + 1)}, {rows(b, i, i + 1)}});
  g.add_stage(prefixes);
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(only_edge(g.tasks).num_events, 8U);
  ASSERT_EQ(g.tasks.stages.size(), 3U);
  ASSERT_TRUE(is_relay(g.tasks.stages[1]));
  EXPECT_EQ(g.tasks.stages[1].stage->name, "S0.relay_out");
  // Rows 0 to 3 signal 8, 7, 6, 5 events: three each go directly. Rows 4 to 7 need no relay.
  for (uint32_t row = 0; row < 8; ++row) EXPECT_EQ(g.tasks.tasks[row].num_signals, std::min(4U, 8 - row)) << row;
  // Consumer i still waits for one event that counts rows 0 to i.
  for (uint32_t i = 0; i < 8; ++i) {
    const Task& task = g.tasks.tasks[g.first_task(1) + i];
    ASSERT_EQ(task.num_waits, 1);
    EXPECT_EQ(task.waits[0].threshold, i + 1);
  }
}

TEST(Dependencies, MoreWaitsThanFitGoThroughARelay) {
  BoxGraph g;
  const TensorId out = g.add_tensor({12, 64});
  std::vector<BoxTile> consumers(2);
  for (int i = 0; i < 6; ++i) {
    const TensorId t = g.add_tensor({4, 64});
    g.add_stage({{{}, {rows(t, 0, 4)}}});
    for (BoxTile& c : consumers) c.reads.push_back(rows(t, 0, 4));
    // A second reader of each, so that its event has consumers of its own and is not merged with the others.
    g.add_stage({{{rows(t, 0, 4)}, {rows(g.add_tensor({4, 64}), 0, 4)}}});
  }
  for (uint32_t i = 0; i < 2; ++i) consumers[i].writes.push_back(rows(out, i, i + 1));
  g.add_stage(consumers);
  ASSERT_TRUE(g.derive());
  const uint32_t last = g.index_of(12);
  ASSERT_TRUE(is_relay(g.tasks.stages[last - 1]));
  EXPECT_EQ(g.tasks.stages[last - 1].stage->name, "S12.relay_in");
  EXPECT_EQ(g.tasks.stages[last - 1].stage->num_tiles, 1U) << "both tiles need the same, so they share the relay";
  const Task& relay = g.tasks.tasks[g.tasks.stages[last - 1].first_task];
  EXPECT_EQ(relay.num_waits, 3);
  ASSERT_EQ(relay.num_signals, 1);
  for (uint32_t i = 0; i < 2; ++i) {
    const Task& task = g.tasks.tasks[g.tasks.stages[last].first_task + i];
    ASSERT_EQ(task.num_waits, 4);
    EXPECT_EQ(task.waits[3].event, relay.signals[0].event);
    EXPECT_EQ(task.waits[3].threshold, 1U);
  }
}

TEST(Dependencies, EventsThatOnlyTheSameTasksWaitForAreMergedWhereWaitsRunOut) {
  BoxGraph g;
  BoxTile consumer;
  for (int i = 0; i < 6; ++i) {
    const TensorId t = g.add_tensor({4, 64});
    g.add_stage(row_tiles(4, {}, {t}));
    consumer.reads.push_back(rows(t, 0, 4));
  }
  consumer.writes.push_back(rows(g.add_tensor({4, 64}), 0, 4));
  g.add_stage({consumer});
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.stages.size(), 7U);
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].threshold, 24U);
  EXPECT_EQ(g.tasks.events[0].num_parts, 6U);
  EXPECT_EQ(g.tasks.events[0].producer_stage, kInvalidId);
}

TEST(Dependencies, SeveralPublicationsKeepTheirOrderThroughRelays) {
  BoxGraph g;
  std::vector<BoxTile> consumers;
  BoxTile producer;
  // Three readers of publication 0 and three of publication 1, each with its own second producer.
  const TensorId p0 = g.add_tensor({4, 64});
  const TensorId p1 = g.add_tensor({4, 64});
  producer.writes = {rows(p0, 0, 4, 0), rows(p1, 0, 4, 1)};
  std::vector<BoxTile> producers{producer};
  for (int64_t i = 0; i < 6; ++i) {
    const TensorId t = i < 3 ? p0 : p1;
    producers.push_back({{}, {rows(g.add_tensor({1, 64}), 0, 1)}});
    BoxTile c;
    c.reads = {rows(t, 0, 4), producers.back().writes[0]};
    c.writes = {rows(g.add_tensor({1, 64}), 0, 1)};
    consumers.push_back(c);
  }
  g.add_stage(producers);
  g.add_stage(consumers);
  ASSERT_TRUE(g.derive());
  const Task& first = g.tasks.tasks[0];
  ASSERT_EQ(first.num_signals, 4);
  uint32_t last = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_GE(abi::publication(first.signals[i]), last);
    last = abi::publication(first.signals[i]);
  }
  EXPECT_EQ(last, 1U);
}

TEST(EventModes, WholeMakesBarriersAndDropsWhatTheyImply) {
  BoxGraph g;
  const TensorId u = g.add_tensor({8, 64});
  const TensorId w = g.add_tensor({8, 64});
  const TensorId v = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {u}));
  g.add_stage(row_tiles(8, {u}, {w}));
  g.add_stage(row_tiles(8, {u, w}, {v}));
  ASSERT_TRUE(g.derive({.mode = EventMode::kWhole}));
  ASSERT_EQ(g.tasks.events.size(), 2U);
  for (const Event& e : g.tasks.events) EXPECT_EQ(e.threshold, 8U);
  EXPECT_TRUE(g.tasks.edges[1].is_implied);
}

TEST(EventModes, GcdGivesTasksOneWaitAndOneSignal) {
  // Four producers, a branch of four and one of two: groups of two producers (the least common multiple of 1 and 2).
  BoxGraph g;
  const TensorId f = g.add_tensor({4, 64});
  const TensorId a = g.add_tensor({4, 64});
  const TensorId b = g.add_tensor({4, 64});
  g.add_stage(row_tiles(4, {}, {f}));
  g.add_stage(row_tiles(4, {f}, {a}));
  g.add_stage({{{rows(f, 0, 2)}, {rows(b, 0, 2)}}, {{rows(f, 2, 4)}, {rows(b, 2, 4)}}});
  g.add_stage(row_tiles(4, {a, b}, {g.add_tensor({4, 64})}));
  ASSERT_TRUE(g.derive({.mode = EventMode::kGcd}));
  ASSERT_EQ(g.tasks.events.size(), 4U);
  for (const Task& task : g.tasks.tasks) {
    EXPECT_LE(task.num_waits, 1);
    EXPECT_LE(task.num_signals, 1);
  }
  EXPECT_EQ(g.tasks.edges[0].events, (std::vector<EventShape>{{2, 3, 2}}));
  EXPECT_EQ(g.tasks.edges[3].events, (std::vector<EventShape>{{3, 2, 2}}));
}

TEST(EventModes, GcdStaysExactWhereForksAndJoinsMesh) {
  BoxGraph g;  // A -> C; A, B -> D
  const TensorId a = g.add_tensor({4, 64});
  const TensorId b = g.add_tensor({4, 64});
  g.add_stage(row_tiles(4, {}, {a}));
  g.add_stage(row_tiles(4, {}, {b}));
  g.add_stage(row_tiles(4, {a}, {g.add_tensor({4, 64})}));
  g.add_stage(row_tiles(4, {a, b}, {g.add_tensor({4, 64})}));
  ASSERT_TRUE(g.derive({.mode = EventMode::kGcd}));
  EXPECT_EQ(g.tasks.events.size(), 8U);
  for (uint32_t i = 8; i < 12; ++i) EXPECT_EQ(g.tasks.tasks[i].num_waits, 1) << "C does not wait for B";
}

TEST(EventModes, AutoNeverWaitsLessThanExact) {
  BoxGraph g;
  const TensorId a = g.add_tensor({64, 64});
  g.add_stage(row_tiles(64, {}, {a}));
  g.add_stage(row_tiles(64, {a}, {g.add_tensor({64, 64})}));
  EventOptions cheap_signals{.mode = EventMode::kAuto};
  cheap_signals.costs.num_workers = 8;  // eight waves: waiting for all of them costs
  ASSERT_TRUE(g.derive(cheap_signals));
  EXPECT_EQ(g.tasks.edges[0].block, 1U);
  EXPECT_LT(g.tasks.edges[0].exact_us, g.tasks.edges[0].whole_us);

  BoxGraph dear;  // rows are read by pairs that overlap: every producer signals twice
  const TensorId b = dear.add_tensor({64, 64});
  dear.add_stage(row_tiles(64, {}, {b}));
  std::vector<BoxTile> pairs;
  const TensorId out = dear.add_tensor({64, 64});
  for (int64_t i = 0; i + 1 < 64; ++i) pairs.push_back({{rows(b, i, i + 2)}, {rows(out, i, i + 1)}});
  dear.add_stage(pairs);
  EventOptions dear_signals{.mode = EventMode::kAuto};
  dear_signals.costs.num_workers = 64;  // one wave: little to gain
  dear_signals.costs.signal_us = 5;
  ASSERT_TRUE(dear.derive(dear_signals));
  EXPECT_EQ(dear.tasks.edges[0].block, 0U);
  EXPECT_EQ(dear.tasks.events.size(), 1U);
  EXPECT_EQ(dear.tasks.events[0].threshold, 64U);
}

TEST(Dependencies, IrregularPairsFallBackInsteadOfGoingQuadratic) {
  // Every producer writes one element of a diagonal, every consumer reads another large box: all sets differ.
  BoxGraph g;
  constexpr int64_t kN = 1500;
  const TensorId a = g.add_tensor({kN, kN});
  const TensorId b = g.add_tensor({kN, 64});
  std::vector<BoxTile> producers;
  std::vector<BoxTile> consumers;
  for (int64_t i = 0; i < kN; ++i) {
    producers.push_back({{}, {block(a, i, i + 1, i, i + 1)}});
    consumers.push_back({{block(a, 0, i + 1, 0, i + 1)}, {rows(b, i, i + 1)}});
  }
  g.add_stage(producers);
  g.add_stage(consumers);
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].threshold, kN);
  EXPECT_EQ(g.tasks.events[0].num_consumers, kN);
  EXPECT_EQ(only_edge(g.tasks).policy, EdgePolicy::kWhole);
}

TEST(Dependencies, FaultyFamiliesAreNamed) {
  const auto message = [](BoxGraph& g) {
    const Status status = g.derive();
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message;
  };
  BoxGraph outside;
  const TensorId a = outside.add_tensor({4, 64});
  outside.add_stage({{{}, {rows(a, 3, 5)}}});
  EXPECT_THAT(message(outside), HasSubstr("outside of its tensor"));
  BoxGraph weight;
  const TensorId w = weight.add_tensor({4, 64}, false, Storage::kWeight);
  weight.add_stage({{{}, {rows(w, 0, 1)}}});
  EXPECT_THAT(message(weight), HasSubstr("read-only"));
  BoxGraph no_finals;
  const TensorId b = no_finals.add_tensor({4, 64});
  no_finals.add_stage({{{}, {}, 0}}, {{{}, {rows(b, 0, 1)}, 1}});
  EXPECT_THAT(message(no_finals), HasSubstr("join group"));
}

// Each of them looking through those before would take 5 * 10^9 steps.
TEST(Dependencies, ReadersOfOneTensorTakeLinearTime) {
  constexpr uint32_t kReaders = 100000;
  BoxGraph g;
  const TensorId shared = g.add_tensor({1, 64});
  g.add_stage(row_tiles(1, {}, {shared}));
  for (uint32_t i = 0; i < kReaders; ++i) g.add_stage(row_tiles(1, {shared}, {g.add_tensor({1, 64})}));
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.edges.size(), kReaders);
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].num_consumers, kReaders);
}

// The last stage waits for thousands of readers, each by a need and an edge of its own.
TEST(Dependencies, AWriterIsAfterThousandsOfReaders) {
  constexpr uint32_t kReaders = 1000;
  BoxGraph g;
  const TensorId shared = g.add_tensor({1, 64});
  g.add_stage(row_tiles(1, {}, {shared}));
  for (uint32_t i = 0; i < kReaders; ++i) g.add_stage(row_tiles(1, {shared}, {g.add_tensor({1, 64})}));
  g.add_stage(row_tiles(1, {}, {shared}));
  ASSERT_TRUE(g.derive());
  // A read behind the write, and the write behind each read; the first write it need not wait for again.
  size_t war = 0;
  for (const StageEdge& e : g.tasks.edges)
    war += e.consumer_stage == kReaders + 1 && e.hazard == HazardKind::kWar ? 1 : 0;
  EXPECT_EQ(war, kReaders);
}

}  // namespace
}  // namespace megartp::lowering
