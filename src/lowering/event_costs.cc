#include "lowering/event_costs.h"

#include <algorithm>
#include <cmath>

namespace megartp::lowering {
namespace {

// Tiles of one wave do not end together: spread of their durations, as a share of the mean. Assumed.
constexpr double kSpread = 0.2;

}  // namespace

EventCostModel::EventCostModel(const TaskGraph& graph, Dependencies& dependencies, const EventCosts& costs)
    : d_(dependencies), costs_(costs) {
  const double workers = std::max(1U, costs.num_workers);
  const double bytes_per_us = costs.read_gb_per_s * 1e3 / workers;
  const double flops_per_us = costs.gflops * 1e3 / workers;
  for (const TaskStage& stage : graph.stages) {
    double sum = 0;
    const uint32_t n = stage.stage->num_tiles;
    for (uint32_t t = stage.first_task; t < stage.first_task + n; ++t)
      sum += std::max(static_cast<double>(graph.tasks[t].bytes) / bytes_per_us,
                      static_cast<double>(graph.tasks[t].flops) / flops_per_us);
    tile_us_.push_back(costs.task_overhead_us + (n > 0 ? sum / n : 0));
  }
  std::vector<uint32_t> num_tasks(d_.lists.size(), 0);
  for (const ListId list : d_.list_of_task) ++num_tasks[list];
  for (ListId list = 1; list < d_.lists.size(); ++list) {
    const auto needs = std::as_const(d_.lists).needs(list);
    for (uint32_t i = 0; i < needs.size(); ++i)
      pairs_[{needs[i].stage, d_.lists.consumer_stage(list)}].uses.push_back({list, i, needs[i].set, num_tasks[list]});
  }
  for (auto& [stages, pair] : pairs_) {
    pair.exact_us = pair.chosen_us = cost_us(stages.first, pair, 1);
    pair.whole_us = cost_us(stages.first, pair, 0);
  }
}

SetId EventCostModel::round_up(SetId set, uint32_t num_units, uint32_t block) {
  if (block == 1) return set;
  if (block == 0) return d_.sets.all(num_units);
  std::vector<UnitInterval> rounded;
  for (const UnitInterval& i : d_.sets.intervals(set))
    rounded.push_back({i.begin / block * block, std::min(num_units, (i.end + block - 1) / block * block)});
  return d_.sets.intern_intervals(rounded);
}

double EventCostModel::cost_us(uint32_t producer, const Pair& pair, uint32_t block) {
  const uint32_t n = d_.units[producer].num_units;
  const uint32_t workers = std::max(1U, costs_.num_workers);
  const double tile = tile_us_[producer];
  const uint32_t num_waves = (n + workers - 1) / workers;
  const double waves = num_waves;
  const auto done = [&](uint32_t last_unit, uint32_t count) {
    const uint32_t wave = last_unit / workers + 1;
    return wave * tile + kSpread * tile * count / (count + 1.0);
  };
  const double all_done = done(n - 1, n);

  double saved = 0;  // of all consumers together
  double signals = 0;
  uint32_t most = 0;
  std::vector<SetId> seen;
  for (const Use& use : pair.uses) {
    const SetId set = round_up(use.set, n, block);
    const uint32_t last = d_.sets.intervals(set).back().end - 1;
    saved += use.num_tasks * (all_done - done(last, d_.sets.size(set)));
    seen.push_back(set);
  }
  std::ranges::sort(seen);
  seen.erase(std::ranges::unique(seen).begin(), seen.end());
  for (const SetId set : seen) {
    signals += d_.sets.size(set);
    most = std::max(most, d_.sets.size(set));
  }
  // Before the last tile is done, no more than the idle workers' time can be used.
  const double idle = (waves * workers - n) * tile + kSpread * tile * std::min(n, workers) / 2;
  const double extra_signals = std::max(0.0, signals / n - 1);
  return waves * extra_signals * costs_.signal_us + most * costs_.contended_add_us - std::min(saved, idle) / workers;
}

void EventCostModel::coarsen() {
  for (auto& [stages, pair] : pairs_) {
    const uint32_t n = d_.units[stages.first].num_units;
    for (uint32_t block = 2; block < n; block *= 2)
      if (const double us = cost_us(stages.first, pair, block); us < pair.chosen_us) {
        pair.chosen_us = us;
        pair.block = block;
      }
    if (pair.whole_us < pair.chosen_us) {
      pair.chosen_us = pair.whole_us;
      pair.block = 0;
    }
    if (pair.block == 1) continue;
    for (const Use& use : pair.uses) {
      Need& need = d_.lists.needs(use.list)[use.need];
      need.set = round_up(need.set, n, pair.block);
    }
  }
}

void EventCostModel::explain(StageEdge& edge) const {
  const auto it = pairs_.find({edge.producer_stage, edge.consumer_stage});
  if (it == pairs_.end()) return;  // everything of it is implied
  const Pair& pair = it->second;
  edge.block = pair.block;
  edge.exact_us = pair.exact_us;
  edge.chosen_us = pair.chosen_us;
  edge.whole_us = pair.whole_us;
}

}  // namespace megartp::lowering
