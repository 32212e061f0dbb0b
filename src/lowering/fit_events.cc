// fit_events: from drafts to what an instruction holds.
//
// Where a task would need more waits or signals than fit, relay tasks carry them. They do no work, and nobody waits
// longer than without them:
//
//   too many signals            too many waits
//   u --> e0                    e0 -------\              .
//   u --> hub --> relay --> e1  e1, e2 --> relay --> joint --> task
//                       --> e2
//
// Producers with the same overflowing signals share a hub, tasks with the same waits share a joint.
#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "lowering/event_drafts.h"
#include "lowering/relays.h"

namespace megartp::lowering {
namespace {

struct DraftSignal {
  uint32_t event = 0;
  uint32_t increment = 0;
  uint32_t publication = 0;
};

class Fitter {
 public:
  Fitter(TaskGraph& graph, Dependencies& d, EventDrafts& drafts, const EventOptions& options)
      : graph_(graph), d_(d), drafts_(drafts), options_(options) {}

  Status run() {
    MEGARTP_TRY(collect_signals());
    fan_out();
    fan_in();
    write_events();
    MEGARTP_TRY(write_tasks());
    if (!relays_.empty()) MEGARTP_TRY(insert_relays(graph_, std::move(relays_)));
    name_producers();
    return {};
  }

 private:
  // --- signals ------------------------------------------------------------------------------------------------------
  // Who signals for a unit: the tile, or for a final tile the first tile of its join group (its tiles share signals).
  uint32_t signaller_of(uint32_t stage, uint32_t unit) const {
    const StageUnits& units = d_.units[stage];
    const uint32_t first = graph_.stages[stage].first_task;
    if (!units.is_fused) return first + unit;
    return first + units.groups.tiles[units.groups.tile_offsets[units.groups.group_of_final[unit]]];
  }

  template <class Visit>
  void for_each_signal(const Visit& visit) const {
    for (uint32_t e = 0; e < drafts_.events.size(); ++e)
      for (const Need& part : drafts_.events[e].parts)
        for (const UnitInterval& interval : d_.sets.intervals(part.set))
          for (uint32_t u = interval.begin; u < interval.end; ++u) visit(e, part, signaller_of(part.stage, u));
  }

  Status collect_signals() {
    const size_t num_tasks = graph_.tasks.size();
    uint64_t total = 0;
    for (const EventDraft& e : drafts_.events)
      for (const Need& part : e.parts) total += d_.sets.size(part.set);
    const uint64_t limit = kFreeSignals + kSignalsPerTask * num_tasks;
    if (total > limit)
      return make_error(ErrorCode::kOutOfResources,
                        fmt::format("graph '{}': its events count {} signals, at most {} are sent for {} tasks; make "
                                    "them coarser (auto, gcd or whole)",
                                    graph_.name, total, limit, num_tasks));
    offsets_.assign(num_tasks + 1, 0);
    for_each_signal([&](uint32_t, const Need&, uint32_t task) { ++offsets_[task + 1]; });
    for (size_t i = 1; i <= num_tasks; ++i) offsets_[i] += offsets_[i - 1];
    signals_.resize(offsets_.back());
    counts_.assign(num_tasks, 0);
    for_each_signal([&](uint32_t event, const Need& part, uint32_t task) {
      // Final tiles of one group follow one another for one event: they make one signal.
      DraftSignal* const begin = signals_.data() + offsets_[task];
      uint32_t& count = counts_[task];
      if (count > 0 && begin[count - 1].event == event)
        ++begin[count - 1].increment;
      else
        begin[count++] = {event, 1, part.publication};
    });
    for (uint32_t task = 0; task < num_tasks; ++task)
      std::ranges::stable_sort(signals_of(task), {}, &DraftSignal::publication);
    return {};
  }

  std::span<DraftSignal> signals_of(uint32_t task) {
    return std::span(signals_).subspan(offsets_[task], counts_[task]);
  }

  // --- relays -------------------------------------------------------------------------------------------------------
  struct Hub {
    uint32_t stage = 0;
    uint32_t publication = 0;
    std::vector<uint32_t> events;      // that its relays signal
    std::vector<uint64_t> increments;  // of all members together
    std::vector<uint32_t> units;
    uint32_t event = 0;
  };

  void fan_out() {
    for (uint32_t s = 0; s < graph_.stages.size(); ++s) {
      std::map<std::vector<uint32_t>, uint32_t> hub_of;  // publication, then events -> hubs_
      std::vector<Hub> hubs;
      const uint32_t first = graph_.stages[s].first_task;
      const StageUnits& units = d_.units[s];
      if (units.is_fused) {
        const StageGroups& g = units.groups;
        for (uint32_t group = 0; group + 1 < g.tile_offsets.size(); ++group)
          split_signals(s, first + g.tiles[g.tile_offsets[group]], group, hub_of, hubs);
      } else {
        for (uint32_t t = 0; t < units.num_units; ++t) split_signals(s, first + t, t, hub_of, hubs);
      }
      for (Hub& hub : hubs) {
        drafts_.events[hub.event].parts.push_back({s, hub.publication, d_.sets.intern_units(hub.units)});
        for (size_t i = 0; i < hub.events.size(); i += options_.max_signals) {
          Relay relay{s, true, {}, {}};
          relay.waits.push_back(hub.event);
          for (size_t j = i; j < std::min(hub.events.size(), i + options_.max_signals); ++j)
            relay.signals.emplace_back(hub.events[j], hub.increments[j]);
          relays_.push_back(std::move(relay));
        }
      }
    }
  }

  // `who` is the tile, or the join group that `task` speaks for.
  void split_signals(uint32_t stage, uint32_t task, uint32_t who, std::map<std::vector<uint32_t>, uint32_t>& hub_of,
                     std::vector<Hub>& hubs) {
    const std::span<DraftSignal> signals = signals_of(task);
    if (signals.size() <= options_.max_signals) return;
    // One slot at least for each publication; where that is too many, everything goes with the last.
    uint32_t num_publications = 1;
    for (size_t i = 1; i < signals.size(); ++i)
      num_publications += signals[i].publication != signals[i - 1].publication;
    if (num_publications > options_.max_signals) {
      for (DraftSignal& signal : signals) signal.publication = signals.back().publication;
      std::ranges::stable_sort(signals, {}, &DraftSignal::event);
      num_publications = 1;
    }
    uint32_t spare = options_.max_signals - num_publications;
    std::vector<DraftSignal> kept;
    for (size_t begin = 0; begin < signals.size();) {
      size_t end = begin;
      while (end < signals.size() && signals[end].publication == signals[begin].publication) ++end;
      const auto count = static_cast<uint32_t>(end - begin);
      const uint32_t slots = 1 + std::min(count - 1, spare);
      spare -= slots - 1;
      const uint32_t direct = slots == count ? count : slots - 1;
      kept.insert(kept.end(), signals.begin() + static_cast<ptrdiff_t>(begin),
                  signals.begin() + static_cast<ptrdiff_t>(begin + direct));
      if (direct < count)
        kept.push_back(join_hub(stage, who, signals.subspan(begin + direct, count - direct), hub_of, hubs));
      begin = end;
    }
    std::ranges::copy(kept, signals.begin());
    counts_[task] = static_cast<uint32_t>(kept.size());
  }

  // The signal to a hub that stands for `rest`, all of one publication.
  DraftSignal join_hub(uint32_t stage, uint32_t who, std::span<const DraftSignal> rest,
                       std::map<std::vector<uint32_t>, uint32_t>& hub_of, std::vector<Hub>& hubs) {
    std::vector<uint32_t> key{rest[0].publication};
    for (const DraftSignal& signal : rest) key.push_back(signal.event);
    const auto [it, is_new] = hub_of.try_emplace(std::move(key), static_cast<uint32_t>(hubs.size()));
    if (is_new) {
      Hub hub;
      hub.stage = stage;
      hub.publication = rest[0].publication;
      for (const DraftSignal& signal : rest) hub.events.push_back(signal.event);
      hub.increments.resize(rest.size(), 0);
      hub.event = static_cast<uint32_t>(drafts_.events.size());
      drafts_.events.emplace_back();
      hubs.push_back(std::move(hub));
    }
    Hub& hub = hubs[it->second];
    for (size_t i = 0; i < rest.size(); ++i) hub.increments[i] += rest[i].increment;
    const StageUnits& units = d_.units[stage];
    if (!units.is_fused) {
      hub.units.push_back(who);
      return {hub.event, 1, hub.publication};
    }
    const StageGroups& g = units.groups;
    const auto finals =
        std::span(g.finals).subspan(g.final_offsets[who], g.final_offsets[who + 1] - g.final_offsets[who]);
    hub.units.insert(hub.units.end(), finals.begin(), finals.end());
    return {hub.event, static_cast<uint32_t>(finals.size()), hub.publication};
  }

  void fan_in() {
    std::map<std::vector<uint32_t>, uint32_t> joints;  // per stage: overflowing events -> joint
    uint32_t stage = kInvalidId;
    for (ListId list = 1; list < d_.lists.size(); ++list) {
      if (drafts_.wait_counts[list] <= options_.max_waits) continue;
      if (d_.lists.consumer_stage(list) != stage) {
        stage = d_.lists.consumer_stage(list);
        joints.clear();
      }
      const std::span<uint32_t> waits = drafts_.waits_of(list);
      const uint32_t direct = options_.max_waits - 1;
      const std::span<const uint32_t> rest = waits.subspan(direct);
      const auto [it, is_new] =
          joints.try_emplace({rest.begin(), rest.end()}, static_cast<uint32_t>(drafts_.events.size()));
      if (is_new) {
        drafts_.events.emplace_back();
        for (size_t i = 0; i < rest.size(); i += options_.max_waits) {
          Relay relay{stage, false, {}, {}};
          const auto chunk = rest.subspan(i, std::min<size_t>(options_.max_waits, rest.size() - i));
          relay.waits.assign(chunk.begin(), chunk.end());
          relay.signals.emplace_back(it->second, 1);
          relays_.push_back(std::move(relay));
          ++drafts_.events.back().num_relays;
        }
      }
      waits[direct] = it->second;
      drafts_.wait_counts[list] = direct + 1;
    }
  }

  // --- output -------------------------------------------------------------------------------------------------------
  void write_events() {
    graph_.events.clear();
    graph_.event_parts.clear();
    graph_.unit_intervals.clear();
    graph_.events.reserve(drafts_.events.size());
    for (const EventDraft& draft : drafts_.events) {
      Event event;
      event.first_part = static_cast<uint32_t>(graph_.event_parts.size());
      event.num_parts = static_cast<uint32_t>(draft.parts.size());
      event.threshold = draft.num_relays;
      for (const Need& part : draft.parts) {
        event.threshold += d_.sets.size(part.set);
        const auto intervals = d_.sets.intervals(part.set);
        graph_.event_parts.push_back({part.stage, part.publication, static_cast<uint32_t>(graph_.unit_intervals.size()),
                                      static_cast<uint32_t>(intervals.size())});
        graph_.unit_intervals.insert(graph_.unit_intervals.end(), intervals.begin(), intervals.end());
      }
      graph_.events.push_back(event);
    }
  }

  Status write_tasks() {
    for (uint32_t s = 0; s < graph_.stages.size(); ++s) {
      const TaskStage& stage = graph_.stages[s];
      for (uint32_t t = 0; t < stage.stage->num_tiles; ++t) {
        Task& task = graph_.tasks[stage.first_task + t];
        task.num_waits = 0;
        for (const uint32_t event : drafts_.waits_of(d_.list_of_task[stage.first_task + t])) {
          task.waits[task.num_waits++] = {event, graph_.events[event].threshold};
          ++graph_.events[event].num_consumers;
        }
        if (!d_.units[s].is_fused) MEGARTP_TRY(write_signals(stage, stage.first_task + t, task));
      }
      if (!d_.units[s].is_fused) continue;
      const StageGroups& g = d_.units[s].groups;
      for (uint32_t group = 0; group + 1 < g.tile_offsets.size(); ++group) {
        const uint32_t signaller = stage.first_task + g.tiles[g.tile_offsets[group]];
        for (uint32_t i = g.tile_offsets[group]; i < g.tile_offsets[group + 1]; ++i)
          MEGARTP_TRY(write_signals(stage, signaller, graph_.tasks[stage.first_task + g.tiles[i]]));
      }
    }
    return {};
  }

  Status write_signals(const TaskStage& stage, uint32_t signaller, Task& task) {
    task.num_signals = 0;
    for (const DraftSignal& signal : signals_of(signaller)) {
      if (signal.increment > abi::kMaxIncrement)
        return make_error(ErrorCode::kOutOfResources,
                          fmt::format("stage '{}': a join group has {} final tiles, at most {} fit", stage.stage->name,
                                      signal.increment, abi::kMaxIncrement));
      task.signals[task.num_signals++] = abi::make_signal(signal.event, signal.increment, signal.publication);
    }
    return {};
  }

  void name_producers() {
    std::vector<bool> is_known(graph_.events.size(), false);
    for (const Task& task : graph_.tasks)
      for (uint32_t i = 0; i < task.num_signals; ++i) {
        Event& event = graph_.events[task.signals[i].event];
        const uint32_t publication = abi::publication(task.signals[i]);
        if (!is_known[task.signals[i].event]) {
          is_known[task.signals[i].event] = true;
          event.producer_stage = task.stage;
          event.publication = publication;
        } else if (event.producer_stage != task.stage || event.publication != publication) {
          event.producer_stage = kInvalidId;
          event.publication = 0;
        }
      }
  }

  static constexpr uint64_t kSignalsPerTask = 256;
  static constexpr uint64_t kFreeSignals = uint64_t{1} << 24;

  TaskGraph& graph_;
  Dependencies& d_;
  EventDrafts& drafts_;
  const EventOptions& options_;
  std::vector<uint32_t> offsets_;  // CSR task -> signals_, counts_ of them count
  std::vector<uint32_t> counts_;
  std::vector<DraftSignal> signals_;
  std::vector<Relay> relays_;
};

}  // namespace

Status fit_events(TaskGraph& graph, Dependencies& dependencies, EventDrafts& drafts, const EventOptions& options) {
  return Fitter(graph, dependencies, drafts, options).run();
}

}  // namespace megartp::lowering
