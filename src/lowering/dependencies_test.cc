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
std::vector<BoxTile> row_tiles(int64_t n, std::vector<TensorId> reads, std::vector<TensorId> writes) {
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

TEST(Dependencies, WritersWaitForEarlierReadersAndWriters) {
  BoxGraph g;
  const TensorId a = g.add_tensor({4, 64});
  const TensorId b = g.add_tensor({4, 64});
  g.add_stage(row_tiles(4, {}, {a}));
  g.add_stage({{{rows(a, 0, 2)}, {rows(b, 0, 2)}}, {{rows(a, 2, 4)}, {rows(b, 2, 4)}}});
  g.add_stage(row_tiles(4, {}, {a}));
  ASSERT_TRUE(g.derive());
  // Row writers of the last stage: WAW on the first stage's row, WAR on the reader of that row.
  for (uint32_t i = 0; i < 4; ++i) {
    const Task& task = g.tasks.tasks[6 + i];
    ASSERT_EQ(task.num_waits, 2);
    EXPECT_EQ(g.tasks.events[task.waits[0].event].producer_stage, 0U);
    EXPECT_EQ(g.tasks.events[task.waits[1].event].producer_stage, 1U);
  }
  EXPECT_EQ(g.tasks.edges.size(), 3U);
}

TEST(Dependencies, OneEventServesReadAndWriteHazardsOfAPair) {
  BoxGraph g;
  const TensorId a = g.add_tensor({4, 64});
  g.add_stage(row_tiles(4, {}, {a}));
  g.add_stage(row_tiles(4, {a}, {a}));  // in place: RAW and WAW with the same unit
  ASSERT_TRUE(g.derive());
  EXPECT_EQ(g.tasks.events.size(), 4U);
  for (uint32_t i = 4; i < 8; ++i) EXPECT_EQ(g.tasks.tasks[i].num_waits, 1);
  EXPECT_EQ(g.tasks.edges.size(), 2U);
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

TEST(Dependencies, APairThatNeedsMoreThanFourSignalsBecomesWhole) {
  BoxGraph g;
  const TensorId a = g.add_tensor({8, 64});
  const TensorId b = g.add_tensor({8, 64});
  g.add_stage(row_tiles(8, {}, {a}));
  std::vector<BoxTile> prefixes;  // row 0 would signal eight events
  for (int64_t i = 0; i < 8; ++i) prefixes.push_back({{rows(a, 0, i + 1)}, {rows(b, i, i + 1)}});
  g.add_stage(prefixes);
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.events.size(), 1U);
  EXPECT_EQ(g.tasks.events[0].threshold, 8U);
  EXPECT_EQ(only_edge(g.tasks).policy, EdgePolicy::kWhole);
}

TEST(Dependencies, SeveralPublicationsOfOneStageShareAWaitWhenSlotsRunOut) {
  BoxGraph g;
  std::vector<TensorId> in;
  for (int i = 0; i < 6; ++i) in.push_back(g.add_tensor({4, 64}));
  const TensorId out = g.add_tensor({4, 64});
  BoxTile first;
  BoxTile second;
  for (uint8_t p = 0; p < 3; ++p) {
    // Different units per publication, so that none implies another.
    first.writes.push_back(rows(in[p], 0, 2, p));
    second.writes.push_back(rows(in[p], 2, 4, p));
  }
  g.add_stage({first, second});
  for (int i = 3; i < 6; ++i) g.add_stage({{{}, {rows(in[static_cast<size_t>(i)], 0, 4)}}});
  BoxTile consumer{{rows(in[0], 0, 4), rows(in[1], 0, 2), rows(in[2], 2, 4), rows(in[3], 0, 4), rows(in[4], 0, 4),
                    rows(in[5], 0, 4)},
                   {rows(out, 0, 4)}};
  g.add_stage({consumer});
  ASSERT_TRUE(g.derive());
  const Task& task = g.tasks.tasks.back();
  EXPECT_EQ(task.num_waits, 4);
  EXPECT_EQ(g.tasks.events[task.waits[0].event].threshold, 2U);
  EXPECT_EQ(g.tasks.events[task.waits[0].event].publication, 2U);
}

TEST(Dependencies, MoreThanFourProducerStagesIsAnErrorThatNamesTheOp) {
  BoxGraph g;
  BoxTile consumer;
  for (int i = 0; i < 5; ++i) {
    const TensorId t = g.add_tensor({4, 64});
    g.add_stage({{{}, {rows(t, 0, 4)}}});
    consumer.reads.push_back(rows(t, 0, 4));
  }
  consumer.writes.push_back(rows(g.add_tensor({4, 64}), 0, 4));
  g.add_stage({consumer});
  const Status status = g.derive();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfResources);
  EXPECT_THAT(status.error().message, HasSubstr("op 'S5'"));
  EXPECT_THAT(status.error().message, HasSubstr("5 earlier stages"));
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

}  // namespace
}  // namespace megartp::lowering
