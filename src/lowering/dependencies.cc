// derive_events: which tile waits for which units of which earlier stage.
//
// One stage at a time, in program order: collect its regions, link them with those of earlier stages on the same
// tensors, turn the links into needs per tile, share events among equal needs. A pair of stages that would overflow an
// instruction is made coarser (Coarseness) and the work repeated; coarser is always correct, because every unit of the
// producer comes before.
#include <algorithm>
#include <array>
#include <unordered_map>

#include <fmt/format.h>

#include "lowering/event_table.h"
#include "lowering/passes.h"

namespace megartp::lowering {
namespace {

enum class Coarseness : uint8_t {
  kExact,
  kWholePublication,  // all units, on the publication of the access
  kWholeStage,        // all units, on the stage's last publication, which says that everything is over
};

// A tile must wait for these units of a stage to have sent a publication.
struct Need {
  uint32_t stage = 0;
  uint8_t publication = 0;
  SetId set = kEmptySet;
};

class Deriver {
 public:
  explicit Deriver(TaskGraph& graph) : graph_(graph), last_use_(graph.tensors.size(), 0) {
    for (uint32_t s = 0; s < graph.stages.size(); ++s)
      for (const TensorId t : graph.stages[s].stage->slots)
        if (t < last_use_.size()) last_use_[t] = s;
  }

  Status run() {
    constexpr int kMaxGentleAttempts = 12;
    for (int attempt = 0;; ++attempt) {
      reset();
      for (uint32_t s = 0; s < graph_.stages.size(); ++s) MEGARTP_TRY(process_stage(s));
      const std::vector<uint32_t> overflowing = MEGARTP_TRY(events_.assign_signals(graph_, units_, sets_));
      if (overflowing.empty()) break;
      for (const uint32_t s : overflowing)
        if (!coarsen_consumers_of(s, attempt >= kMaxGentleAttempts))
          return make_error(
              ErrorCode::kOutOfResources,
              fmt::format("op '{}' (stage '{}'): a tile sends more signals than an instruction holds ({})", op_name(s),
                          graph_.stages[s].stage->name, abi::kMaxSignals));
    }
    graph_.events.resize(events_.size());
    for (uint32_t e = 0; e < events_.size(); ++e) {
      Event& event = graph_.events[e];
      event.producer_stage = events_[e].stage;
      event.publication = events_[e].publication;
      event.threshold = sets_.size(events_[e].set);
      event.first_part = e;
      event.num_parts = 1;
      const auto intervals = sets_.intervals(events_[e].set);
      graph_.event_parts.push_back({event.producer_stage, event.publication,
                                    static_cast<uint32_t>(graph_.unit_intervals.size()),
                                    static_cast<uint32_t>(intervals.size())});
      graph_.unit_intervals.insert(graph_.unit_intervals.end(), intervals.begin(), intervals.end());
    }
    for (Task& task : graph_.tasks)
      for (uint32_t i = 0; i < task.num_waits; ++i) {
        ++graph_.events[task.waits[i].event].num_consumers;
        task.waits[i].threshold = graph_.events[task.waits[i].event].threshold;
      }
    return {};
  }

 private:
  void reset() {
    history_.assign(graph_.tensors.size(), {});
    units_.clear();
    units_.reserve(graph_.stages.size());
    events_ = EventTable{};
    graph_.edges.clear();
    graph_.events.clear();
    graph_.event_parts.clear();
    graph_.unit_intervals.clear();
    for (Task& task : graph_.tasks) {
      task.num_waits = task.num_signals = 0;
      task.waits.fill({});
      task.signals.fill({});
    }
  }

  const std::string& op_name(uint32_t stage) const { return graph_.op_names[graph_.stages[stage].op]; }

  // --- coarseness of a pair of stages --------------------------------------------------------------------------------
  static uint64_t pair_key(uint32_t producer, uint32_t consumer) { return uint64_t{producer} << 32 | consumer; }
  Coarseness coarseness(uint32_t producer, uint32_t consumer) const {
    if (coarse_.empty()) return Coarseness::kExact;
    const auto it = coarse_.find(pair_key(producer, consumer));
    return it == coarse_.end() ? Coarseness::kExact : it->second;
  }
  bool coarsen(uint32_t producer, uint32_t consumer, Coarseness to) {
    Coarseness& c = coarse_[pair_key(producer, consumer)];
    if (c >= to) return false;
    c = to;
    return true;
  }
  // Coarsens the consumer with the most events of that producer, or every consumer. False when nothing is left to
  // coarsen.
  bool coarsen_consumers_of(uint32_t producer, bool all) {
    std::unordered_map<uint32_t, uint32_t> num_events;  // by consumer stage
    for (uint32_t e = 0; e < events_.size(); ++e)
      if (events_[e].stage == producer) ++num_events[events_[e].first_consumer_stage];
    uint32_t worst = kInvalidId;
    for (const StageEdge& edge : graph_.edges) {
      const uint32_t c = edge.consumer_stage;
      if (edge.producer_stage != producer || coarseness(producer, c) != Coarseness::kExact) continue;
      if (num_events[c] > 1 && (worst == kInvalidId || num_events[c] > num_events[worst])) worst = c;
    }
    if (worst != kInvalidId && !all) return coarsen(producer, worst, Coarseness::kWholePublication);
    bool changed = false;
    for (const StageEdge& edge : graph_.edges)
      if (edge.producer_stage == producer) changed |= coarsen(producer, edge.consumer_stage, Coarseness::kWholeStage);
    return changed;
  }

  // --- one stage -----------------------------------------------------------------------------------------------------
  Status process_stage(uint32_t stage) {
    StageAccesses accesses = MEGARTP_TRY(collect_accesses(graph_, stage));
    make_links(accesses);
    if (!links_.empty()) {
      while (!MEGARTP_TRY(collect_needs(stage, accesses))) {
      }
      assign_waits(stage, accesses);
      add_edges(stage);
    }
    extend_history(stage, accesses);
    units_.push_back({accesses.is_fused, accesses.num_units, accesses.last_publication, std::move(accesses.groups)});
    return {};
  }

  void make_links(const StageAccesses& accesses) {
    links_.clear();
    link_offsets_.assign(1, 0);
    for (const auto& table : accesses.tables) {
      const bool is_partial = graph_.tensors[table->tensor].is_partial;
      for (const HistoryEntry& entry : history_[table->tensor]) {
        if (!table->is_write && !entry.table->is_write) continue;
        links_.push_back(resolve_link(entry, units_[entry.stage], *table, is_partial, sets_));
        const auto touches = [](SetId set) { return set != kEmptySet; };
        if (std::ranges::none_of(links_.back().set_of_box, touches)) links_.pop_back();
      }
      link_offsets_.push_back(static_cast<uint32_t>(links_.size()));
    }
  }

  Need need_of(const Link& link, SetId set, uint32_t consumer) {
    const uint32_t producer = link.producer.stage;
    Need need{producer, link.producer.table->publication, set};
    const Coarseness coarse = coarseness(producer, consumer);
    if (coarse != Coarseness::kExact) need.set = sets_.all(units_[producer].num_units);
    if (coarse == Coarseness::kWholeStage) need.publication = units_[producer].last_publication;
    return need;
  }

  // Unites needs of the same stage and publication.
  void add_need(const Need& need) {
    for (Need& have : tile_needs_) {
      if (have.stage != need.stage || have.publication != need.publication) continue;
      if (have.set != need.set) have.set = sets_.unite(have.set, need.set);
      return;
    }
    tile_needs_.push_back(need);
  }

  void add_records(uint32_t stage, std::span<const AccessRecord> records) {
    for (const AccessRecord& r : records)
      for (uint32_t l = link_offsets_[r.table]; l < link_offsets_[r.table + 1]; ++l)
        if (const SetId set = links_[l].set_of_box[r.box]; set != kEmptySet) add_need(need_of(links_[l], set, stage));
  }

  // A unit sends its publications in ascending order, so a later one of the same units implies an earlier one.
  bool implies(const Need& strong, const Need& weak) const {
    return strong.stage == weak.stage && strong.publication >= weak.publication && sets_.contains(strong.set, weak.set);
  }

  // Fills needs_ of all tiles; false when a pair of stages was made coarser and the call must be repeated.
  Result<bool> collect_needs(uint32_t stage, const StageAccesses& accesses) {
    const auto num_tiles = static_cast<uint32_t>(accesses.tile_offsets.size() - 1);
    needs_.clear();
    need_offsets_.assign(1, 0);
    std::vector<Need> group_needs;
    std::vector<uint32_t> group_need_offsets{0};
    if (accesses.is_fused) {
      for (uint32_t g = 0; g + 1 < accesses.group_offsets.size(); ++g) {
        tile_needs_.clear();
        add_records(stage, records_of(accesses.group_records, accesses.group_offsets, g));
        group_needs.insert(group_needs.end(), tile_needs_.begin(), tile_needs_.end());
        group_need_offsets.push_back(static_cast<uint32_t>(group_needs.size()));
      }
    }
    for (uint32_t t = 0; t < num_tiles; ++t) {
      tile_needs_.clear();
      add_records(stage, records_of(accesses.tile_records, accesses.tile_offsets, t));
      if (accesses.is_fused) {
        const uint32_t g = accesses.group_of_tile[t];
        for (uint32_t i = group_need_offsets[g]; i < group_need_offsets[g + 1]; ++i) add_need(group_needs[i]);
      }
      for (size_t i = 0; i < tile_needs_.size();) {
        bool drop = false;
        for (size_t j = 0; j < tile_needs_.size() && !drop; ++j)
          drop = i != j && implies(tile_needs_[j], tile_needs_[i]);
        if (drop)
          tile_needs_.erase(tile_needs_.begin() + static_cast<ptrdiff_t>(i));
        else
          ++i;
      }
      if (tile_needs_.size() > abi::kMaxWaits) return shorten_waits(stage, t);
      needs_.insert(needs_.end(), tile_needs_.begin(), tile_needs_.end());
      need_offsets_.push_back(static_cast<uint32_t>(needs_.size()));
    }
    return true;
  }

  // Several publications of one stage become one wait for the whole stage.
  Result<bool> shorten_waits(uint32_t stage, uint32_t tile) {
    std::vector<uint32_t> producers;
    for (const Need& need : tile_needs_) producers.push_back(need.stage);
    std::ranges::sort(producers);
    bool changed = false;
    for (size_t i = 1; i < producers.size(); ++i)
      if (producers[i] == producers[i - 1]) changed |= coarsen(producers[i], stage, Coarseness::kWholeStage);
    if (changed) return false;
    return make_error(
        ErrorCode::kOutOfResources,
        fmt::format("op '{}' (stage '{}'): tile {} waits for {} earlier stages, an instruction holds {} waits",
                    op_name(stage), graph_.stages[stage].stage->name, tile, producers.size(), abi::kMaxWaits));
  }

  void assign_waits(uint32_t stage, const StageAccesses& accesses) {
    Task* const tasks = graph_.tasks.data() + graph_.stages[stage].first_task;
    for (uint32_t t = 0; t + 1 < need_offsets_.size(); ++t) {
      Task& task = tasks[t];
      for (uint32_t i = need_offsets_[t]; i < need_offsets_[t + 1]; ++i)
        task.waits[task.num_waits++].event = events_.get(needs_[i].stage, needs_[i].publication, needs_[i].set, stage);
      note_edges(stage, task, records_of(accesses.tile_records, accesses.tile_offsets, t));
      if (accesses.is_fused)
        note_edges(stage, task, records_of(accesses.group_records, accesses.group_offsets, accesses.group_of_tile[t]));
    }
  }

  // Which of the task's events carries each link.
  void note_edges(uint32_t stage, const Task& task, std::span<const AccessRecord> records) {
    for (const AccessRecord& r : records) {
      for (uint32_t l = link_offsets_[r.table]; l < link_offsets_[r.table + 1]; ++l) {
        Link& link = links_[l];
        if (link.set_of_box[r.box] == kEmptySet) continue;
        const Need need = need_of(link, link.set_of_box[r.box], stage);
        for (uint32_t i = 0; i < task.num_waits; ++i) {
          const EventTable::Entry& event = events_[task.waits[i].event];
          if (!implies({event.stage, event.publication, event.set}, need)) continue;
          if (link.events.empty() || link.events.back() != task.waits[i].event)
            link.events.push_back(task.waits[i].event);
          break;
        }
      }
    }
  }

  static std::span<const AccessRecord> records_of(const std::vector<AccessRecord>& records,
                                                  const std::vector<uint32_t>& offsets, uint32_t i) {
    return std::span(records).subspan(offsets[i], offsets[i + 1] - offsets[i]);
  }

  // One edge per (producer, tensor, hazard): links that differ in publication only are explained together.
  void add_edges(uint32_t stage) {
    std::vector<bool> done(links_.size(), false);
    for (size_t i = 0; i < links_.size(); ++i) {
      if (done[i]) continue;
      const Link& first = links_[i];
      StageEdge edge{.producer_stage = first.producer.stage,
                     .consumer_stage = stage,
                     .tensor = first.producer.table->tensor,
                     .hazard = first.hazard,
                     .policy = first.policy,
                     .events = {}};
      std::vector<uint32_t> events;
      for (size_t j = i; j < links_.size(); ++j) {
        const Link& link = links_[j];
        if (link.producer.stage != edge.producer_stage || link.producer.table->tensor != edge.tensor ||
            link.hazard != edge.hazard)
          continue;
        done[j] = true;
        events.insert(events.end(), link.events.begin(), link.events.end());
        if (link.policy != edge.policy)
          edge.policy = link.policy == EdgePolicy::kWhole || edge.policy == EdgePolicy::kWhole ? EdgePolicy::kWhole
                                                                                               : EdgePolicy::kTileCover;
      }
      if (coarseness(edge.producer_stage, stage) != Coarseness::kExact) edge.policy = EdgePolicy::kWhole;
      std::ranges::sort(events);
      edge.num_events = static_cast<uint32_t>(std::ranges::unique(events).begin() - events.begin());
      graph_.edges.push_back(edge);
    }
  }

  void extend_history(uint32_t stage, const StageAccesses& accesses) {
    std::vector<const AccessTable*> writes;
    for (size_t i = 0; i < accesses.tables.size(); ++i) {
      const TensorId tensor = accesses.tables[i]->tensor;
      std::vector<HistoryEntry>& history = history_[tensor];
      if (last_use_[tensor] <= stage) {
        history = {};
        continue;
      }
      const bool is_first = std::none_of(accesses.tables.begin(), accesses.tables.begin() + static_cast<ptrdiff_t>(i),
                                         [&](const auto& t) { return t->tensor == tensor; });
      if (is_first && !history.empty()) {
        writes.clear();
        for (const auto& t : accesses.tables)
          if (t->tensor == tensor && t->is_write) writes.push_back(t.get());
        if (!writes.empty())
          std::erase_if(history, [&](const HistoryEntry& e) { return is_superseded(*e.table, writes); });
      }
      history.push_back({stage, accesses.tables[i]});
    }
  }

  TaskGraph& graph_;
  std::vector<uint32_t> last_use_;  // last stage that has the tensor in its operand row
  std::unordered_map<uint64_t, Coarseness> coarse_;
  UnitSets sets_;
  EventTable events_;
  std::vector<std::vector<HistoryEntry>> history_;  // by tensor
  std::vector<StageUnits> units_;                   // by stage
  // Of the stage at work:
  std::vector<Link> links_;
  std::vector<uint32_t> link_offsets_;  // by table
  std::vector<Need> tile_needs_;
  std::vector<Need> needs_;
  std::vector<uint32_t> need_offsets_;  // by tile
};

}  // namespace

Status derive_events(TaskGraph& graph, const EventOptions& /*options*/) { return Deriver(graph).run(); }

}  // namespace megartp::lowering
