// Random stages against an oracle that looks at every pair of tasks.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "lowering/box_stage.h"

namespace megartp::lowering {
namespace {

using testing::BoxGraph;
using testing::BoxTile;

struct Options {
  int max_stages = 5;
  bool allow_scatter = true;
};

EventOptions random_event_options() {
  EventOptions o;
  o.mode = *rc::gen::element(EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole);
  o.max_waits = *rc::gen::element(1U, 2U, 4U);
  o.max_signals = *rc::gen::element(1U, 2U, 4U);
  o.costs.num_workers = *rc::gen::element(1U, 3U, 132U);
  RC_TAG(std::string(to_string(o.mode)));
  return o;
}

Box random_box(const std::vector<int64_t>& dims) {
  Box b;
  b.rank = static_cast<uint32_t>(dims.size());
  for (uint32_t d = 0; d < b.rank; ++d) {
    b.begin[d] = *rc::gen::inRange<int32_t>(0, static_cast<int32_t>(dims[d]));
    b.end[d] = *rc::gen::inRange<int32_t>(b.begin[d] + 1, static_cast<int32_t>(dims[d]) + 1);
  }
  return b;
}

// Cuts a box into disjoint pieces at random places.
void split(const Box& box, int depth, std::vector<Box>& out) {
  const auto d = *rc::gen::inRange<uint32_t>(0, box.rank);
  if (depth == 0 || box.end[d] - box.begin[d] < 2) {
    out.push_back(box);
    return;
  }
  Box low = box;
  Box high = box;
  low.end[d] = high.begin[d] = *rc::gen::inRange(box.begin[d] + 1, box.end[d]);
  split(low, depth - 1, out);
  split(high, depth - 1, out);
}

// Tiles that read anything and write disjoint pieces.
std::vector<BoxTile> random_tiles(const BoxGraph& g, size_t count, const Options& options) {
  std::vector<BoxTile> tiles(count);
  const auto num_tensors = static_cast<uint32_t>(g.tasks.tensors.size());
  for (BoxTile& tile : tiles)
    for (int n = *rc::gen::inRange(0, 3); n > 0; --n) {
      const auto t = *rc::gen::inRange<uint32_t>(0, num_tensors);
      tile.reads.push_back({t, random_box(g.tasks.tensors[t].dims)});
    }
  for (TensorId t = 0; t < num_tensors; ++t) {
    if (*rc::gen::inRange(0, 3) == 0) continue;
    const bool scatter = options.allow_scatter && *rc::gen::inRange(0, 6) == 0;
    std::vector<Box> pieces;
    Box whole = Box::of({});
    for (const int64_t d : g.tasks.tensors[t].dims)
      whole.begin[whole.rank] = 0, whole.end[whole.rank++] = static_cast<int32_t>(d);
    split(whole, *rc::gen::inRange(0, 4), pieces);
    for (const Box& piece : pieces) {
      if (*rc::gen::inRange(0, 5) == 0) continue;
      const auto tile = *rc::gen::inRange<size_t>(0, count);
      const auto publication = *rc::gen::inRange<uint8_t>(0, 3);
      tiles[tile].writes.push_back({t, scatter ? whole : piece, publication, scatter});
    }
  }
  return tiles;
}

BoxGraph random_graph(const Options& options) {
  BoxGraph g;
  const int num_tensors = *rc::gen::inRange(1, 4);
  for (int i = 0; i < num_tensors; ++i) {
    std::vector<int64_t> dims(*rc::gen::inRange<size_t>(1, 4));
    for (int64_t& d : dims) d = *rc::gen::inRange<int64_t>(1, 9);
    g.add_tensor(dims);
  }
  for (int s = *rc::gen::inRange(2, options.max_stages + 1); s > 0; --s) {
    auto tiles = random_tiles(g, *rc::gen::inRange<size_t>(1, 8), options);
    std::vector<BoxTile> finals;
    if (*rc::gen::inRange(0, 3) == 0) {
      const auto groups = *rc::gen::inRange<uint32_t>(1, static_cast<uint32_t>(tiles.size()) + 1);
      for (uint32_t t = 0; t < tiles.size(); ++t) {
        tiles[t].join_group = t % groups;
        tiles[t].writes.clear();  // the tiles' own results are the stage's partials
      }
      finals = random_tiles(g, groups + *rc::gen::inRange<size_t>(0, 3), options);
      for (uint32_t f = 0; f < finals.size(); ++f) finals[f].join_group = f % groups;
    }
    g.add_stage(std::move(tiles), std::move(finals));
  }
  return g;
}

bool conflict(const BoxTile& a, const BoxTile& b) {
  const auto overlap = [](const std::vector<Access>& x, const std::vector<Access>& y) {
    for (const Access& p : x)
      for (const Access& q : y)
        if (p.tensor == q.tensor && p.box.overlaps(q.box)) return true;
    return false;
  };
  return overlap(a.writes, b.reads) || overlap(a.reads, b.writes) || overlap(a.writes, b.writes);
}

// Signal increments of each task, groups counted once, must add up to the thresholds.
void check_sums(const TaskGraph& g, const EventOptions& options) {
  std::vector<uint64_t> sums(g.events.size(), 0);
  std::vector<uint32_t> consumers(g.events.size(), 0);
  std::vector<bool> counted(g.join_counts.size(), false);
  for (const Task& task : g.tasks) {
    RC_ASSERT(task.num_waits <= options.max_waits);
    RC_ASSERT(task.num_signals <= options.max_signals);
    for (uint32_t w = 0; w < task.num_waits; ++w) {
      RC_ASSERT(task.waits[w].threshold == g.events[task.waits[w].event].threshold);
      ++consumers[task.waits[w].event];
    }
    if (task.join_group != abi::kNoJoin) {
      if (counted[task.join_group]) continue;
      counted[task.join_group] = true;
    }
    for (uint32_t s = 0; s < task.num_signals; ++s) {
      const Event& event = g.events[task.signals[s].event];
      if (event.producer_stage != kInvalidId) {
        RC_ASSERT(event.producer_stage == task.stage);
        RC_ASSERT(event.publication == abi::publication(task.signals[s]));
      }
      if (s > 0) RC_ASSERT(abi::publication(task.signals[s]) >= abi::publication(task.signals[s - 1]));
      sums[task.signals[s].event] += abi::increment(task.signals[s]);
    }
  }
  for (size_t e = 0; e < sums.size(); ++e) {
    RC_ASSERT(sums[e] == g.events[e].threshold);
    RC_ASSERT(g.events[e].threshold > 0U);
    RC_ASSERT(g.events[e].num_consumers == consumers[e]);
    RC_ASSERT(consumers[e] > 0U);
  }
}

// before[b][a]: task a is over before task b starts, by events alone.
std::vector<std::vector<bool>> closure(const TaskGraph& g) {
  const size_t n = g.tasks.size();
  std::vector<std::vector<uint32_t>> signallers(g.events.size());
  for (uint32_t t = 0; t < n; ++t)
    for (uint32_t s = 0; s < g.tasks[t].num_signals; ++s) signallers[g.tasks[t].signals[s].event].push_back(t);
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  for (uint32_t t = 0; t < n; ++t) {
    for (uint32_t w = 0; w < g.tasks[t].num_waits; ++w) {
      for (const uint32_t s : signallers[g.tasks[t].waits[w].event]) {
        RC_ASSERT(s < t);
        before[t][s] = true;
        for (uint32_t a = 0; a < n; ++a)
          if (before[s][a]) before[t][a] = true;
      }
    }
  }
  return before;
}

// Units of a stage with the tasks that stand for them: a tile alone; for a final tile (and what the tiles of its group
// touch) the tasks of the group.
struct Unit {
  const BoxTile* tile;
  std::vector<uint32_t> tasks;
};
std::vector<Unit> units_of(const BoxGraph& g, uint32_t stage) {
  std::vector<Unit> units;
  const uint32_t first = g.first_task(stage);
  const auto& tiles = g.stages[stage]->tiles();
  for (uint32_t t = 0; t < tiles.size(); ++t) units.push_back({&tiles[t], {first + t}});
  for (const BoxTile& f : g.stages[stage]->finals()) {
    Unit unit{&f, {}};
    for (uint32_t t = 0; t < tiles.size(); ++t)
      if (tiles[t].join_group == f.join_group) unit.tasks.push_back(first + t);
    units.push_back(unit);
  }
  return units;
}

void check_order(const BoxGraph& g) {
  const auto before = closure(g.tasks);
  for (uint32_t a = 0; a < g.stages.size(); ++a)
    for (uint32_t b = a + 1; b < g.stages.size(); ++b)
      for (const Unit& early : units_of(g, a))
        for (const Unit& late : units_of(g, b))
          if (conflict(*early.tile, *late.tile))
            for (const uint32_t x : early.tasks)
              for (const uint32_t y : late.tasks) RC_ASSERT(before[y][x]);
}

RC_GTEST_PROP(DependenciesProperty, EveryConflictingPairIsOrderedByEvents, ()) {
  BoxGraph g = random_graph({});
  const EventOptions options = random_event_options();
  const Status status = g.derive(options);
  RC_ASSERT(status.has_value());
  check_sums(g.tasks, options);
  check_order(g);
}

RC_GTEST_PROP(DependenciesProperty, LongerChainsAreOrderedToo, ()) {
  BoxGraph g = random_graph({.max_stages = 9, .allow_scatter = true});
  const EventOptions options = random_event_options();
  RC_ASSERT(g.derive(options).has_value());
  check_sums(g.tasks, options);
  check_order(g);
}

// The parts of an event; of one that relays signal, those of the events that they wait for.
void append_parts(const TaskGraph& g, uint32_t event, std::vector<EventPart>& parts) {
  const Event& e = g.events[event];
  parts.insert(parts.end(), g.event_parts.begin() + e.first_part, g.event_parts.begin() + e.first_part + e.num_parts);
  if (e.num_parts > 0) return;
  for (const Task& task : g.tasks)
    for (uint32_t s = 0; s < task.num_signals; ++s)
      if (task.signals[s].event == event)
        for (uint32_t w = 0; w < task.num_waits; ++w) append_parts(g, task.waits[w].event, parts);
}

// A wait names only units that conflict with the tile or its group's final tiles.
RC_GTEST_PROP(DependenciesProperty, NoExactWaitIsWiderThanItsRegions, ()) {
  BoxGraph g = random_graph({.max_stages = 5, .allow_scatter = false});
  EventOptions options = random_event_options();
  options.mode = EventMode::kExact;
  RC_ASSERT(g.derive(options).has_value());
  std::vector<EventPart> parts;
  for (uint32_t b = 0; b < g.stages.size(); ++b) {
    const std::vector<Unit> consumers = units_of(g, b);
    const uint32_t first = g.first_task(b);
    for (uint32_t t = first; t < first + g.stages[b]->tiles().size(); ++t) {
      const Task& task = g.tasks.tasks[t];
      parts.clear();
      for (uint32_t w = 0; w < task.num_waits; ++w) append_parts(g.tasks, task.waits[w].event, parts);
      for (const EventPart& part : parts) {
        uint32_t a = 0;
        while (g.index_of(a) != part.stage) ++a;
        const auto& tiles = g.stages[a]->tiles();
        const auto& finals = g.stages[a]->finals();
        for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i) {
          for (uint32_t u = g.tasks.unit_intervals[i].begin; u < g.tasks.unit_intervals[i].end; ++u) {
            // What a final tile says is done: all tiles and final tiles of its group, which end together.
            std::vector<const BoxTile*> done;
            if (finals.empty()) done.push_back(&tiles[u]);
            for (const auto* list : {&tiles, &finals})
              for (const BoxTile& tile : *list)
                if (!finals.empty() && tile.join_group == finals[u].join_group) done.push_back(&tile);
            bool conflicts = false;
            for (const Unit& late : consumers)
              if (std::ranges::find(late.tasks, t) != late.tasks.end())
                for (const BoxTile* early : done) conflicts = conflicts || conflict(*early, *late.tile);
            RC_ASSERT(conflicts);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace megartp::lowering
