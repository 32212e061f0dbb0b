#include "plan/template_order.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "lowering/box_stage.h"

namespace megartp::plan {
namespace {

using lowering::testing::BoxGraph;
using lowering::testing::BoxTile;

std::vector<std::vector<uint32_t>> groups_of_finals(const TaskGraph& graph) {
  std::vector<std::vector<uint32_t>> groups(graph.stages.size());
  for (size_t s = 0; s < graph.stages.size(); ++s)
    for (uint32_t f = 0; f < graph.stages[s].stage->num_final_tiles; ++f) {
      FinalDesc final;
      graph.stages[s].stage->final_tile(f, final);
      groups[s].push_back(final.join_group);
    }
  return groups;
}

// The counts of a shape, by brute force.
struct Cut {
  Cut(const TaskGraph& g, std::vector<StageCounts> c) : graph(g), counts(std::move(c)) {
    for (const Event& e : g.events) {
      uint32_t total = 0;
      for (uint32_t p = e.first_part; p < e.first_part + e.num_parts; ++p)
        for_units(g.event_parts[p], [&](uint32_t stage, uint32_t u) { total += u < counts[stage].units() ? 1 : 0; });
      totals.push_back(total);
    }
    has_consumer.assign(g.events.size(), 0);
    for (const Task& t : g.tasks)
      for (uint32_t w = 0; w < t.num_waits; ++w)
        if (stays(t)) has_consumer[t.waits[w].event] = 1;
  }
  template <class Visit>
  void for_units(const EventPart& part, const Visit& visit) const {
    for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i)
      for (uint32_t u = graph.unit_intervals[i].begin; u < graph.unit_intervals[i].end; ++u) visit(part.stage, u);
  }
  bool stays(const Task& t) const { return t.tile < counts[t.stage].tiles; }
  std::optional<uint32_t> find_lost() const {
    OrderCheck::Scratch scratch;
    const auto groups = groups_of_finals(graph);
    return OrderCheck(graph, groups).find_lost(counts, totals, has_consumer, scratch);
  }

  const TaskGraph& graph;
  std::vector<StageCounts> counts;
  std::vector<uint32_t> totals;
  std::vector<uint8_t> has_consumer;
};

// before[c][a]: task c is ordered after task a by waits alone. With a cut, only what stays waits and signals.
std::vector<std::vector<bool>> closure(const TaskGraph& graph, const Cut* cut) {
  const auto groups = groups_of_finals(graph);
  const size_t n = graph.tasks.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  for (size_t c = 0; c < n; ++c) {
    if (cut != nullptr && !cut->stays(graph.tasks[c])) continue;
    for (uint32_t w = 0; w < graph.tasks[c].num_waits; ++w) {
      const Event& e = graph.events[graph.tasks[c].waits[w].event];
      for (uint32_t p = e.first_part; p < e.first_part + e.num_parts; ++p) {
        const EventPart& part = graph.event_parts[p];
        for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i)
          for (uint32_t u = graph.unit_intervals[i].begin; u < graph.unit_intervals[i].end; ++u) {
            if (cut != nullptr && u >= cut->counts[part.stage].units()) continue;
            const TaskStage& stage = graph.stages[part.stage];
            for (uint32_t t = 0; t < stage.stage->num_tiles; ++t) {
              TileDesc tile;
              stage.stage->tile(t, tile);
              const bool is_source = groups[part.stage].empty() ? t == u : tile.join_group == groups[part.stage][u];
              if (!is_source) continue;
              const size_t a = stage.first_task + t;
              before[c][a] = true;
              for (size_t x = 0; x < n; ++x)
                if (before[a][x]) before[c][x] = true;
            }
          }
      }
    }
  }
  return before;
}

Access rows(TensorId tensor, int64_t begin, int64_t end) { return {tensor, Box::of({{begin, end}})}; }

std::vector<StageCounts> all_of(const TaskGraph& graph) {
  std::vector<StageCounts> counts;
  for (const TaskStage& s : graph.stages)
    counts.push_back({s.stage->num_tiles, s.stage->num_join_groups, s.stage->num_final_tiles});
  return counts;
}

TEST(TemplateOrder, FindsAnOrderThatOnlyALeftOutTileCarried) {
  BoxGraph g;
  const TensorId t = g.add_tensor({8});
  const TensorId u = g.add_tensor({8});
  g.add_stage({{{}, {rows(t, 0, 8)}}});
  g.add_stage({{{}, {rows(u, 0, 4)}}, {{}, {rows(t, 0, 8), rows(u, 4, 8)}}});  // the second writes t again
  g.add_stage({{{rows(t, 0, 8)}, {}}});
  ASSERT_TRUE(g.derive());
  ASSERT_EQ(g.tasks.tasks[3].num_waits, 1) << "the reader waits for the second writer alone";
  EXPECT_FALSE(Cut(g.tasks, all_of(g.tasks)).find_lost());
  auto counts = all_of(g.tasks);
  counts[1].tiles = 1;
  EXPECT_TRUE(Cut(g.tasks, counts).find_lost());
}

TEST(TemplateOrder, AcceptsWhatATileThatStaysCarriesToo) {
  BoxGraph g;
  const TensorId t = g.add_tensor({8});
  const TensorId u = g.add_tensor({8});
  g.add_stage({{{}, {rows(t, 0, 8)}}});
  g.add_stage({{{rows(t, 0, 8)}, {rows(u, 0, 4)}}, {{rows(t, 0, 8)}, {rows(u, 4, 8)}}});
  g.add_stage({{{rows(u, 0, 8)}, {rows(t, 0, 8)}}});
  ASSERT_TRUE(g.derive());
  auto counts = all_of(g.tasks);
  counts[1].tiles = 1;
  EXPECT_FALSE(Cut(g.tasks, counts).find_lost());
}

// Rows of a fused producer, one op a row, then one tile over all rows: rows that go wait for final tiles of a group
// that stays.
TEST(TemplateOrder, AcceptsRowsOfAGroupThatStays) {
  BoxGraph g;
  const TensorId x = g.add_tensor({8});
  const TensorId y = g.add_tensor({8});
  const TensorId z = g.add_tensor({8});
  std::vector<BoxTile> finals, per_row;
  for (int64_t r = 0; r < 8; ++r) {
    finals.push_back({{}, {rows(x, r, r + 1)}, 0});
    per_row.push_back({{rows(x, r, r + 1)}, {rows(y, r, r + 1)}});
  }
  g.add_stage({{{}, {}, 0}, {{}, {}, 0}}, finals);
  g.add_stage(per_row);
  g.add_stage({{{rows(y, 0, 8)}, {rows(z, 0, 8)}}});
  ASSERT_TRUE(g.derive());
  auto counts = all_of(g.tasks);
  counts[0].finals = 3;
  counts[1].tiles = 3;
  EXPECT_FALSE(Cut(g.tasks, counts).find_lost());
}

BoxTile random_tile(const BoxGraph& g, uint32_t group, bool writes_only) {
  BoxTile tile;
  tile.join_group = group;
  const int accesses = *rc::gen::inRange(1, 4);
  for (int i = 0; i < accesses; ++i) {
    const auto tensor = *rc::gen::inRange<TensorId>(0, static_cast<TensorId>(g.tasks.tensors.size()));
    const auto begin = *rc::gen::inRange<int64_t>(0, 8);
    Access a = rows(tensor, begin, *rc::gen::inRange<int64_t>(begin + 1, 9));
    const bool is_write = writes_only || *rc::gen::arbitrary<bool>();
    a.scatter = is_write;  // tiles of one stage may overlap here
    (is_write ? tile.writes : tile.reads).push_back(a);
  }
  return tile;
}

RC_GTEST_PROP(TemplateOrder, NothingThatIsAcceptedLosesAnOrder, ()) {
  BoxGraph g;
  for (int i = 0; i < 3; ++i) g.add_tensor({8});
  const int num_stages = *rc::gen::inRange(2, 7);
  for (int s = 0; s < num_stages; ++s) {
    const uint32_t tiles = *rc::gen::inRange(1U, 6U);
    const bool fused = *rc::gen::inRange(0, 3) == 0;
    std::vector<BoxTile> list, finals;
    for (uint32_t t = 0; t < tiles; ++t) {
      list.push_back(random_tile(g, fused ? t / 2 : abi::kNoJoin, false));
      if (fused && t % 2 == 0)
        for (int f = 0; f < 2; ++f) finals.push_back(random_tile(g, t / 2, true));
    }
    g.add_stage(list, finals);
  }
  if (!g.derive()) return;  // more waits than an instruction holds
  std::vector<StageCounts> counts = all_of(g.tasks);
  for (StageCounts& c : counts) {
    if (c.groups == 0) {
      c.tiles = *rc::gen::inRange(1U, c.tiles + 1);
    } else {
      c.groups = *rc::gen::inRange(1U, c.groups + 1);
      c.tiles = std::min(c.tiles, c.groups * 2);
      c.finals = *rc::gen::inRange(c.groups * 2 - 1, c.groups * 2 + 1);
    }
  }
  const Cut cut(g.tasks, counts);
  const auto lost = cut.find_lost();
  RC_TAG(lost ? "refused" : "accepted");
  if (lost) return;
  const auto want = closure(g.tasks, nullptr);
  const auto have = closure(g.tasks, &cut);
  for (size_t c = 0; c < g.tasks.tasks.size(); ++c)
    for (size_t a = 0; a < c; ++a)
      if (want[c][a] && cut.stays(g.tasks.tasks[c]) && cut.stays(g.tasks.tasks[a])) RC_ASSERT(have[c][a]);
}

}  // namespace
}  // namespace megartp::plan
