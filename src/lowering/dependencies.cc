// find_dependencies: which tile must wait for which units of which earlier stage.
//
// One stage at a time, in program order: collect its regions, link them with those of earlier stages on the same
// tensors, turn the links into needs per tile.
#include <algorithm>
#include <iterator>
#include <utility>

#include "lowering/need_lists.h"
#include "lowering/stage_accesses.h"

namespace megartp::lowering {
namespace {

class Finder {
 public:
  explicit Finder(const TaskGraph& graph)
      : graph_(graph),
        last_use_(graph.tensors.size(), 0),
        history_(graph.tensors.size()),
        first_need_(graph.stages.size(), kNone),
        first_edge_(graph.stages.size(), kNone) {
    for (uint32_t s = 0; s < graph.stages.size(); ++s)
      for (const TensorId t : graph.stages[s].stage->slots)
        if (t < last_use_.size()) last_use_[t] = s;
    out_.units.reserve(graph.stages.size());
    out_.list_of_task.resize(graph.tasks.size(), kEmptyList);
  }

  Result<Dependencies> run() {
    for (uint32_t s = 0; s < graph_.stages.size(); ++s) {
      StageAccesses accesses = MEGARTP_TRY(collect_accesses(graph_, s));
      make_links(accesses);
      if (!links_.empty()) {
        make_edges(s);
        collect_needs(s, accesses);
      }
      extend_history(s, accesses);
      out_.units.push_back(
          {accesses.is_fused, accesses.num_units, accesses.last_publication, std::move(accesses.groups)});
    }
    return std::move(out_);
  }

 private:
  void make_links(const StageAccesses& accesses) {
    links_.clear();
    link_offsets_.assign(1, 0);
    for (const auto& table : accesses.tables) {
      const bool is_partial = graph_.tensors[table->tensor].is_partial;
      // A read has nothing to do with other reads: a tensor that every stage reads would be looked through by each.
      const History& history = history_[table->tensor];
      for (const HistoryEntry& entry : table->is_write ? history.all : history.writes) {
        links_.push_back(resolve_link(entry, out_.units[entry.stage], *table, is_partial, out_.sets));
        const auto touches = [](SetId set) { return set != kEmptySet; };
        if (std::ranges::none_of(links_.back().set_of_box, touches)) links_.pop_back();
      }
      link_offsets_.push_back(static_cast<uint32_t>(links_.size()));
    }
  }

  // One edge per (producer, tensor): links that differ in hazard or publication are explained together.
  void make_edges(uint32_t stage) {
    const size_t first = out_.edges.size();
    edge_of_link_.clear();
    next_edge_.clear();
    for (const Link& link : links_) {
      uint32_t e = first_edge_[link.producer.stage];
      while (e != kNone && out_.edges[e].edge.tensor != link.producer.table->tensor) e = next_edge_[e - first];
      const auto bit = static_cast<uint8_t>(1U << static_cast<uint32_t>(link.hazard));
      if (e == kNone) {
        e = static_cast<uint32_t>(out_.edges.size());
        next_edge_.push_back(std::exchange(first_edge_[link.producer.stage], e));
        StageEdge edge;
        edge.producer_stage = link.producer.stage;
        edge.consumer_stage = stage;
        edge.tensor = link.producer.table->tensor;
        edge.hazard = link.hazard;
        edge.hazards = bit;
        edge.policy = link.policy;
        out_.edges.push_back({std::move(edge), {}});
      } else {
        StageEdge& edge = out_.edges[e].edge;
        edge.hazard = std::min(edge.hazard, link.hazard);
        edge.hazards = static_cast<uint8_t>(edge.hazards | bit);
        if (edge.policy != link.policy)
          edge.policy = link.policy == EdgePolicy::kWhole || edge.policy == EdgePolicy::kWhole ? EdgePolicy::kWhole
                                                                                               : EdgePolicy::kTileCover;
      }
      edge_of_link_.push_back(e);
    }
    for (const Link& link : links_) first_edge_[link.producer.stage] = kNone;
  }

  static Need need_of(const Link& link, SetId set) {
    return {link.producer.stage, link.producer.table->publication, set};
  }

  // Unites needs of the same stage and publication.
  void add_need(const Need& need) {
    for (uint32_t i = first_need_[need.stage]; i != kNone; i = next_need_[i]) {
      Need& have = tile_needs_[i];
      if (have.publication != need.publication) continue;
      if (have.set != need.set) have.set = out_.sets.unite(have.set, need.set);
      return;
    }
    next_need_.push_back(std::exchange(first_need_[need.stage], static_cast<uint32_t>(tile_needs_.size())));
    tile_needs_.push_back(need);
  }

  void clear_needs() {
    for (const Need& need : tile_needs_) first_need_[need.stage] = kNone;
    tile_needs_.clear();
    next_need_.clear();
  }

  // Leaves in tile_needs_ what no other one implies, in order.
  void drop_implied() {
    kept_.clear();
    for (uint32_t i = 0; i < tile_needs_.size(); ++i) {
      bool drop = false;
      for (uint32_t j = first_need_[tile_needs_[i].stage]; j != kNone && !drop; j = next_need_[j])
        drop = i != j && implies(tile_needs_[j], tile_needs_[i]);
      if (!drop) kept_.push_back(tile_needs_[i]);
    }
  }

  void add_records(std::span<const AccessRecord> records) {
    for (const AccessRecord& r : records)
      for (uint32_t l = link_offsets_[r.table]; l < link_offsets_[r.table + 1]; ++l)
        if (const SetId set = links_[l].set_of_box[r.box]; set != kEmptySet) add_need(need_of(links_[l], set));
  }

  // A unit sends its publications in ascending order, so a later one of the same units implies an earlier one.
  bool implies(const Need& strong, const Need& weak) const {
    return strong.stage == weak.stage && strong.publication >= weak.publication &&
           out_.sets.contains(strong.set, weak.set);
  }

  void collect_needs(uint32_t stage, const StageAccesses& accesses) {
    const auto num_tiles = static_cast<uint32_t>(accesses.tile_offsets.size() - 1);
    const uint32_t first_task = graph_.stages[stage].first_task;
    std::vector<Need> group_needs;
    std::vector<uint32_t> group_need_offsets{0};
    if (accesses.is_fused) {
      for (uint32_t g = 0; g + 1 < accesses.group_offsets.size(); ++g) {
        clear_needs();
        add_records(records_of(accesses.group_records, accesses.group_offsets, g));
        group_needs.insert(group_needs.end(), tile_needs_.begin(), tile_needs_.end());
        group_need_offsets.push_back(static_cast<uint32_t>(group_needs.size()));
      }
    }
    for (uint32_t t = 0; t < num_tiles; ++t) {
      const std::span<const AccessRecord> records = records_of(accesses.tile_records, accesses.tile_offsets, t);
      const uint32_t group = accesses.is_fused ? accesses.group_of_tile[t] : 0;
      clear_needs();
      add_records(records);
      if (accesses.is_fused)
        for (uint32_t i = group_need_offsets[group]; i < group_need_offsets[group + 1]; ++i) add_need(group_needs[i]);
      drop_implied();
      const ListId list = out_.lists.intern(stage, kept_);
      out_.list_of_task[first_task + t] = list;
      note_uses(list, records);
      if (accesses.is_fused) note_uses(list, records_of(accesses.group_records, accesses.group_offsets, group));
    }
  }

  void note_uses(ListId list, std::span<const AccessRecord> records) {
    for (const AccessRecord& r : records)
      for (uint32_t l = link_offsets_[r.table]; l < link_offsets_[r.table + 1]; ++l) {
        const SetId set = links_[l].set_of_box[r.box];
        if (set == kEmptySet) continue;
        std::vector<EdgeUse>& uses = out_.edges[edge_of_link_[l]].uses;
        const Need need = need_of(links_[l], set);
        if (uses.empty() || uses.back().list != list || !(uses.back().need == need)) uses.push_back({list, need});
      }
  }

  static std::span<const AccessRecord> records_of(const std::vector<AccessRecord>& records,
                                                  const std::vector<uint32_t>& offsets, uint32_t i) {
    return std::span(records).subspan(offsets[i], offsets[i + 1] - offsets[i]);
  }

  void extend_history(uint32_t stage, const StageAccesses& accesses) {
    std::vector<const AccessTable*> writes;
    for (size_t i = 0; i < accesses.tables.size(); ++i) {
      const TensorId tensor = accesses.tables[i]->tensor;
      History& history = history_[tensor];
      if (last_use_[tensor] <= stage) {
        history = {};
        continue;
      }
      const bool is_first = std::none_of(accesses.tables.begin(), accesses.tables.begin() + static_cast<ptrdiff_t>(i),
                                         [&](const auto& t) { return t->tensor == tensor; });
      if (is_first && !history.all.empty()) {
        writes.clear();
        for (const auto& t : accesses.tables)
          if (t->tensor == tensor && t->is_write) writes.push_back(t.get());
        const auto superseded = [&](const HistoryEntry& e) { return is_superseded(*e.table, writes); };
        if (!writes.empty() && std::erase_if(history.all, superseded) > 0) {
          history.writes.clear();
          std::ranges::copy_if(history.all, std::back_inserter(history.writes),
                               [](const HistoryEntry& e) { return e.table->is_write; });
        }
      }
      history.all.push_back({stage, accesses.tables[i]});
      if (accesses.tables[i]->is_write) history.writes.push_back(history.all.back());
    }
  }

  static constexpr uint32_t kNone = ~0U;

  // Tables that later stages must still be ordered after.
  struct History {
    std::vector<HistoryEntry> all;
    std::vector<HistoryEntry> writes;  // those of `all`
  };

  const TaskGraph& graph_;
  Dependencies out_;
  std::vector<uint32_t> last_use_;  // last stage that has the tensor in its operand row
  std::vector<History> history_;    // by tensor
  // Of the stage at work:
  std::vector<Link> links_;
  std::vector<uint32_t> link_offsets_;  // by table
  std::vector<uint32_t> edge_of_link_;
  // Of the tile at work; chained by stage, as the stage's new edges are by producer: a tile may wait for thousands.
  std::vector<Need> tile_needs_, kept_;
  std::vector<uint32_t> next_need_, first_need_;  // by need, by stage
  std::vector<uint32_t> next_edge_, first_edge_;  // by new edge, by stage
};

}  // namespace

Result<Dependencies> find_dependencies(const TaskGraph& graph) { return Finder(graph).run(); }

}  // namespace megartp::lowering
