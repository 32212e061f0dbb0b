#include "support/dependency_oracle.h"
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "support/order_relation.h"

namespace megartp::test {
namespace {

bool is_tracked(const TaskGraph& graph, TensorId tensor) {
  const Storage storage = graph.tensors[tensor].storage;
  return storage != Storage::kWeight && storage != Storage::kRuntimeArg;
}

bool is_empty(const Box& box) {
  for (uint32_t d = 0; d < box.rank; ++d)
    if (box.begin[d] >= box.end[d]) return true;
  return box.rank == 0;
}

// What one tile or final tile does to a tensor.
struct Touch {
  uint32_t stage = 0;
  uint32_t actor = 0;  // of Stages::actors
  Box box;
  bool is_write = false;
  uint32_t done = 0;  // publication that says that it is over
};

// A tile, or a final tile: the tasks that stand for it and the units that announce its end.
struct Actor {
  std::vector<uint32_t> tasks;
  std::vector<uint32_t> units;  // numbers over all stages
};

// All regions and units of a graph.
class Regions {
 public:
  std::vector<Actor> actors;
  std::vector<uint32_t> first_unit;                  // by stage
  std::vector<std::vector<uint32_t>> tasks_of_unit;  // by unit
  std::vector<std::vector<Touch>> touches;           // by tensor, in program order

  explicit Regions(const TaskGraph& graph) : touches(graph.tensors.size()), graph_(graph) {
    last_publication_ = last_publications(graph);
    for (uint32_t s = 0; s < graph.stages.size(); ++s) add_stage(s);
  }

 private:
  void add_stage(uint32_t s) {
    const TaskStage& task_stage = graph_.stages[s];
    const Stage& stage = *task_stage.stage;
    const bool is_fused = stage.num_final_tiles > 0;
    first_unit.push_back(static_cast<uint32_t>(tasks_of_unit.size()));
    std::vector<std::vector<uint32_t>> tasks_of_group(stage.num_join_groups);
    std::vector<std::vector<uint32_t>> units_of_group(stage.num_join_groups);
    TileDesc tile;
    std::vector<TileDesc> tiles;
    for (uint32_t t = 0; t < stage.num_tiles; ++t) {
      tile.clear();
      stage.tile(t, tile);
      if (is_fused) tasks_of_group[tile.join_group].push_back(task_stage.first_task + t);
      tiles.push_back(tile);
    }
    std::vector<FinalDesc> finals(stage.num_final_tiles);
    for (uint32_t f = 0; f < stage.num_final_tiles; ++f) {
      stage.final_tile(f, finals[f]);
      units_of_group[finals[f].join_group].push_back(static_cast<uint32_t>(tasks_of_unit.size()));
      tasks_of_unit.push_back(tasks_of_group[finals[f].join_group]);
    }
    add_silent_reads(stage, tiles, finals);
    for (uint32_t t = 0; t < stage.num_tiles; ++t) {
      const uint32_t task = task_stage.first_task + t;
      if (is_fused) {
        // The last arriver sends, so whatever it sends says that all tiles of the group are over.
        add_actor(s, {{task}, units_of_group[tiles[t].join_group]}, tiles[t].reads, tiles[t].writes, 0);
      } else {
        add_actor(s, {{task}, {static_cast<uint32_t>(tasks_of_unit.size())}}, tiles[t].reads, tiles[t].writes, {});
        tasks_of_unit.push_back({task});
      }
    }
    for (uint32_t f = 0; f < stage.num_final_tiles; ++f)
      // A group's last arriver runs its final tiles and then sends for all of them at once.
      add_actor(s, {tasks_of_group[finals[f].join_group], units_of_group[finals[f].join_group]}, finals[f].reads,
                finals[f].writes, {});
  }

  // A tensor of the operand row that no tile names counts as read whole by every tile.
  void add_silent_reads(const Stage& stage, std::vector<TileDesc>& tiles, const std::vector<FinalDesc>& finals) const {
    for (const TensorId t : stage.slots) {
      if (t >= graph_.tensors.size()) continue;
      const auto names = [t](const std::vector<Access>& list) {
        return std::ranges::any_of(list, [t](const Access& a) { return a.tensor == t && !is_empty(a.box); });
      };
      if (std::ranges::any_of(tiles, [&](const TileDesc& d) { return names(d.reads) || names(d.writes); }) ||
          std::ranges::any_of(finals, [&](const FinalDesc& d) { return names(d.reads) || names(d.writes); }))
        continue;
      Box whole;
      for (const int64_t d : graph_.tensors[t].dims) whole.end[whole.rank++] = static_cast<int32_t>(d);
      for (TileDesc& tile : tiles) tile.reads.push_back({t, whole});
    }
  }

  void add_actor(uint32_t stage, Actor actor, const std::vector<Access>& reads, const std::vector<Access>& writes,
                 std::optional<uint32_t> done) {
    const auto id = static_cast<uint32_t>(actors.size());
    actors.push_back(std::move(actor));
    for (const Access& a : reads)
      if (is_tracked(graph_, a.tensor) && !is_empty(a.box))
        touches[a.tensor].push_back({stage, id, a.box, false, done.value_or(last_publication_[stage])});
    for (const Access& a : writes)
      if (is_tracked(graph_, a.tensor) && !is_empty(a.box))
        touches[a.tensor].push_back({stage, id, a.box, true, done.value_or(a.publication)});
  }

  const TaskGraph& graph_;
  std::vector<uint32_t> last_publication_;
};

class Oracle {
 public:
  Oracle(const TaskGraph& graph, const OracleOptions& options) : graph_(graph), options_(options), regions_(graph) {}

  std::vector<std::string> run() {
    check_tasks();
    if (problems_.empty()) check_events();
    // What follows needs sound ids.
    if (!problems_.empty()) return std::move(problems_);
    const OrderRelation order(graph_);
    if (!order.is_sound()) {
      report_order_of_ids();
      return std::move(problems_);
    }
    if (options_.no_coarser) required_ = BitRows(graph_.tasks.size(), regions_.tasks_of_unit.size());
    for (TensorId t = 0; t < graph_.tensors.size(); ++t) check_pairs(t, order);
    if (options_.no_coarser && problems_.empty()) check_waits();
    return std::move(problems_);
  }

 private:
  bool report(std::string problem) {
    if (problems_.size() < options_.max_problems) problems_.push_back(std::move(problem));
    return problems_.size() < options_.max_problems;
  }

  std::string name(uint32_t task) const {
    const Task& t = graph_.tasks[task];
    const TaskStage& stage = graph_.stages[t.stage];
    if (is_relay(stage)) return fmt::format("task {} (relay '{}' tile {})", task, stage.stage->name, t.tile);
    return fmt::format("task {} (op {} tile {})", task, stage.stage->name, t.tile);
  }

  // --- every task by itself ------------------------------------------------------------------------------------------
  void check_tasks() {
    std::vector<uint32_t> consumers(graph_.events.size(), 0);
    for (uint32_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (task.stage >= graph_.stages.size() || graph_.stages[task.stage].first_task + task.tile != t) {
        report(fmt::format("task {} is not where its stage and tile say", t));
        continue;
      }
      if (task.num_waits > abi::kMaxWaits || task.num_signals > abi::kMaxSignals) {
        report(fmt::format("{} has {} waits and {} signals", name(t), task.num_waits, task.num_signals));
        continue;
      }
      for (uint32_t i = 0; i < task.num_waits; ++i) {
        const abi::Wait& wait = task.waits[i];
        if (wait.event >= graph_.events.size()) {
          report(fmt::format("{} waits for event {}, which does not exist", name(t), wait.event));
          continue;
        }
        ++consumers[wait.event];
        if (wait.threshold != graph_.events[wait.event].threshold)
          report(fmt::format("{} waits for {} of event {}, whose threshold is {}", name(t), wait.threshold, wait.event,
                             graph_.events[wait.event].threshold));
        for (uint32_t j = 0; j < i; ++j)
          if (task.waits[j].event == wait.event)
            report(fmt::format("{} waits twice for event {}", name(t), wait.event));
      }
      for (uint32_t i = 0; i < task.num_signals; ++i)
        if (task.signals[i].event >= graph_.events.size())
          report(fmt::format("{} signals event {}, which does not exist", name(t), task.signals[i].event));
    }
    for (uint32_t e = 0; e < graph_.events.size(); ++e)
      if (consumers[e] == 0 || consumers[e] != graph_.events[e].num_consumers)
        report(
            fmt::format("event {} has {} waiting tasks and says {}", e, consumers[e], graph_.events[e].num_consumers));
  }

  // --- thresholds, parts and signals ---------------------------------------------------------------------------------
  // (event, publication, owner): the owner is a task, or the first task of a join group.
  using Sums = std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint64_t>;
  struct Count {
    uint64_t units = 0;
    uint32_t publication = 0;
  };
  using Counts = std::map<std::pair<uint32_t, uint32_t>, Count>;  // (event, owner)

  void check_events() {
    const std::vector<uint32_t> owners = find_owners();
    Sums sent;
    std::vector<uint64_t> totals(graph_.events.size(), 0);
    for (uint32_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      const Task& owner = graph_.tasks[owners[t]];
      if (owners[t] != t) {
        // Anyone may arrive last, so all must be ready to send the same.
        bool same = task.num_signals == owner.num_signals;
        for (uint32_t i = 0; same && i < task.num_signals; ++i)
          same = task.signals[i].event == owner.signals[i].event &&
                 task.signals[i].increment_publication == owner.signals[i].increment_publication;
        if (!same) report(fmt::format("{} and {} of one join group send different signals", name(t), name(owners[t])));
        continue;
      }
      for (uint32_t i = 0; i < task.num_signals; ++i) {
        const abi::Signal& signal = task.signals[i];
        sent[{signal.event, abi::publication(signal), t}] += abi::increment(signal);
        totals[signal.event] += abi::increment(signal);
      }
    }
    for (uint32_t e = 0; e < graph_.events.size(); ++e)
      if (totals[e] != graph_.events[e].threshold || totals[e] == 0)
        report(fmt::format("event {} has threshold {}, its signals add up to {}", e, graph_.events[e].threshold,
                           totals[e]));
    compare_with_parts(sent, owners);
  }

  std::vector<uint32_t> find_owners() const {
    std::vector<uint32_t> owners(graph_.tasks.size());
    std::vector<uint32_t> first_of_group(graph_.join_counts.size(), UINT32_MAX);
    for (uint32_t t = 0; t < owners.size(); ++t) {
      owners[t] = t;
      const uint32_t group = graph_.tasks[t].join_group;
      if (group == abi::kNoJoin) continue;
      if (first_of_group[group] == UINT32_MAX) first_of_group[group] = t;
      owners[t] = first_of_group[group];
    }
    return owners;
  }

  // What an event counts must be what reaches it: signals of the units' tasks, or relay tasks that wait for them.
  void compare_with_parts(const Sums& sent, const std::vector<uint32_t>& owners) {
    Counts expected;
    for (uint32_t e = 0; e < graph_.events.size(); ++e) {
      if (graph_.events[e].num_parts == 0) continue;  // relays alone signal it: see check_relays
      if (!for_each_unit(e, [&](uint32_t publication, uint32_t unit) {
            Count& count = expected[{e, owners[regions_.tasks_of_unit[unit].front()]}];
            ++count.units;
            count.publication = std::max(count.publication, publication);
          }))
        report(fmt::format("event {} has a part that does not exist", e));
    }
    Counts arriving;
    std::vector<std::vector<std::pair<uint32_t, Count>>> direct(graph_.events.size());  // by event: owner, count
    for (const auto& [key, sum] : sent) {
      const auto& [event, publication, owner] = key;
      if (is_relay(graph_.stages[graph_.tasks[owner].stage])) continue;
      direct[event].push_back({owner, {sum, publication}});
      arriving[{event, owner}] = {sum, publication};
    }
    for (const auto& [key, sum] : sent) {
      const auto& [event, unused, relay] = key;
      if (!is_relay(graph_.stages[graph_.tasks[relay].stage]) || graph_.events[event].num_parts == 0) continue;
      uint64_t through = 0;
      for (uint32_t i = 0; i < graph_.tasks[relay].num_waits; ++i)
        for (const auto& [owner, count] : direct[graph_.tasks[relay].waits[i].event]) {
          arriving[{event, owner}].units += count.units;
          arriving[{event, owner}].publication = count.publication;
          through += count.units;
        }
      if (through != sum)
        report(fmt::format("{} stands for {} units and adds {} to event {}", name(relay), through, sum, event));
    }
    for (const Counts* keys : {&expected, &arriving})
      for (const auto& [key, unused] : *keys) {
        const Count want = expected.contains(key) ? expected.at(key) : Count{};
        const Count have = arriving.contains(key) ? arriving.at(key) : Count{};
        if (want.units != have.units)
          report(fmt::format("event {} counts {} units of {}, which sends {}", key.first, want.units, name(key.second),
                             have.units));
        else if (have.publication < want.publication)
          report(fmt::format("event {} counts publication {} of {}, which signals it with publication {}", key.first,
                             want.publication, name(key.second), have.publication));
      }
    check_relays(sent);
  }

  // An event without parts is signalled by relays alone.
  void check_relays(const Sums& sent) {
    for (const auto& [key, unused] : sent) {
      const auto& [event, publication, owner] = key;
      if (graph_.events[event].num_parts == 0 && !is_relay(graph_.stages[graph_.tasks[owner].stage]))
        report(fmt::format("event {} counts no unit, but {} signals it", event, name(owner)));
    }
  }

  // Calls visit(publication, unit over all stages) for all that the event counts; false when a part is broken.
  template <class Visit>
  bool for_each_unit(uint32_t e, Visit visit) const {
    const Event& event = graph_.events[e];
    if (event.num_parts == 0 || size_t{event.first_part} + event.num_parts > graph_.event_parts.size()) return false;
    for (uint32_t p = event.first_part; p < event.first_part + event.num_parts; ++p) {
      const EventPart& part = graph_.event_parts[p];
      if (part.stage >= graph_.stages.size() ||
          size_t{part.first_interval} + part.num_intervals > graph_.unit_intervals.size())
        return false;
      const size_t end_unit =
          part.stage + 1 < graph_.stages.size() ? regions_.first_unit[part.stage + 1] : regions_.tasks_of_unit.size();
      for (uint32_t i = part.first_interval; i < part.first_interval + part.num_intervals; ++i) {
        const UnitInterval& interval = graph_.unit_intervals[i];
        if (interval.begin >= interval.end || regions_.first_unit[part.stage] + interval.end > end_unit) return false;
        for (uint32_t u = interval.begin; u < interval.end; ++u)
          visit(part.publication, regions_.first_unit[part.stage] + u);
      }
    }
    return true;
  }

  void report_order_of_ids() {
    for (uint32_t s = 0; s < graph_.tasks.size(); ++s)
      for (uint32_t i = 0; i < graph_.tasks[s].num_signals; ++i)
        for (uint32_t w = 0; w <= s; ++w)
          for (uint32_t j = 0; j < graph_.tasks[w].num_waits; ++j)
            if (graph_.tasks[w].waits[j].event == graph_.tasks[s].signals[i].event)
              if (!report(fmt::format("{} waits for event {}, which the later {} signals", name(w),
                                      graph_.tasks[w].waits[j].event, name(s))))
                return;
  }

  // --- pairs ---------------------------------------------------------------------------------------------------------
  void check_pairs(TensorId tensor, const OrderRelation& order) {
    const std::vector<Touch>& touches = regions_.touches[tensor];
    for (const Touch& late : touches) {
      for (const Touch& early : touches) {
        if (early.stage >= late.stage) break;  // program order
        if ((!early.is_write && !late.is_write) || !early.box.overlaps(late.box)) continue;
        const Actor& before = regions_.actors[early.actor];
        const Actor& after = regions_.actors[late.actor];
        if (options_.no_coarser)
          for (const uint32_t task : after.tasks)
            for (const uint32_t unit : before.units) required_.set(task, unit);
        for (const uint32_t x : before.tasks) {
          // A final tile runs when all tasks of its group have arrived: one that has waited is enough.
          const bool ordered =
              std::ranges::any_of(after.tasks, [&](uint32_t y) { return order.is_before(x, early.done, y); });
          if (!ordered && !report(fmt::format("{} is not after {} on tensor {}", name(after.tasks.front()), name(x),
                                              graph_.tensors[tensor].name)))
            return;
        }
      }
    }
  }

  // --- no wait without need ------------------------------------------------------------------------------------------
  void check_waits() {
    // required_ becomes transitive. Units come before the tasks that need them.
    std::vector<uint32_t> direct;
    for (uint32_t t = 0; t < graph_.tasks.size(); ++t) {
      direct.clear();
      for (uint32_t u = 0; u < regions_.tasks_of_unit.size(); ++u)
        if (required_.test(t, u)) direct.push_back(u);
      for (const uint32_t u : direct)
        for (const uint32_t x : regions_.tasks_of_unit[u]) required_.unite(t, required_, x);
    }
    units_of_event_ = BitRows(graph_.events.size(), regions_.tasks_of_unit.size());
    is_expanded_.assign(graph_.events.size(), false);
    for (uint32_t t = 0; t < graph_.tasks.size(); ++t) {
      if (is_relay(graph_.stages[graph_.tasks[t].stage])) continue;
      for (uint32_t i = 0; i < graph_.tasks[t].num_waits; ++i) {
        const uint32_t event = graph_.tasks[t].waits[i].event;
        expand(event);
        const size_t unit = units_of_event_.first_missing(event, required_, t);
        if (unit < units_of_event_.end_bit() &&
            !report(fmt::format("{} waits for {} (event {}), which no overlap asks for", name(t),
                                name(regions_.tasks_of_unit[unit].front()), event)))
          return;
      }
    }
  }

  // The units that an event stands for, those behind relay tasks included.
  void expand(uint32_t event) {
    if (is_expanded_[event]) return;
    is_expanded_[event] = true;
    for_each_unit(event, [&](uint32_t, uint32_t unit) { units_of_event_.set(event, unit); });
    for (const Task& task : graph_.tasks) {
      if (!is_relay(graph_.stages[task.stage])) continue;
      for (uint32_t i = 0; i < task.num_signals; ++i) {
        if (task.signals[i].event != event) continue;
        for (uint32_t w = 0; w < task.num_waits; ++w) {
          expand(task.waits[w].event);
          units_of_event_.unite(event, units_of_event_, task.waits[w].event);
        }
      }
    }
  }

  const TaskGraph& graph_;
  const OracleOptions options_;
  const Regions regions_;
  std::vector<std::string> problems_;
  BitRows required_;  // by task: units
  BitRows units_of_event_;
  std::vector<bool> is_expanded_;
};

}  // namespace

std::vector<std::string> dependency_problems(const TaskGraph& graph, const OracleOptions& options) {
  return Oracle(graph, options).run();
}

}  // namespace megartp::test
