// find_dependencies: which tile must wait for which units of which earlier stage.
//
// One stage at a time, in program order: collect its regions, link them with those of earlier stages on the same
// tensors, turn the links into needs per tile.
#include <algorithm>

#include "lowering/need_lists.h"
#include "lowering/stage_accesses.h"

namespace megartp::lowering {
namespace {

class Finder {
 public:
  explicit Finder(const TaskGraph& graph)
      : graph_(graph), last_use_(graph.tensors.size(), 0), history_(graph.tensors.size()) {
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
      for (const HistoryEntry& entry : history_[table->tensor]) {
        if (!table->is_write && !entry.table->is_write) continue;
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
    for (const Link& link : links_) {
      size_t e = first;
      for (; e < out_.edges.size(); ++e)
        if (out_.edges[e].edge.producer_stage == link.producer.stage &&
            out_.edges[e].edge.tensor == link.producer.table->tensor)
          break;
      const auto bit = static_cast<uint8_t>(1U << static_cast<uint32_t>(link.hazard));
      if (e == out_.edges.size()) {
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
      edge_of_link_.push_back(static_cast<uint32_t>(e));
    }
  }

  static Need need_of(const Link& link, SetId set) {
    return {link.producer.stage, link.producer.table->publication, set};
  }

  // Unites needs of the same stage and publication.
  void add_need(const Need& need) {
    for (Need& have : tile_needs_) {
      if (have.stage != need.stage || have.publication != need.publication) continue;
      if (have.set != need.set) have.set = out_.sets.unite(have.set, need.set);
      return;
    }
    tile_needs_.push_back(need);
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
        tile_needs_.clear();
        add_records(records_of(accesses.group_records, accesses.group_offsets, g));
        group_needs.insert(group_needs.end(), tile_needs_.begin(), tile_needs_.end());
        group_need_offsets.push_back(static_cast<uint32_t>(group_needs.size()));
      }
    }
    for (uint32_t t = 0; t < num_tiles; ++t) {
      const std::span<const AccessRecord> records = records_of(accesses.tile_records, accesses.tile_offsets, t);
      const uint32_t group = accesses.is_fused ? accesses.group_of_tile[t] : 0;
      tile_needs_.clear();
      add_records(records);
      if (accesses.is_fused)
        for (uint32_t i = group_need_offsets[group]; i < group_need_offsets[group + 1]; ++i) add_need(group_needs[i]);
      for (size_t i = 0; i < tile_needs_.size();) {
        bool drop = false;
        for (size_t j = 0; j < tile_needs_.size() && !drop; ++j)
          drop = i != j && implies(tile_needs_[j], tile_needs_[i]);
        if (drop)
          tile_needs_.erase(tile_needs_.begin() + static_cast<ptrdiff_t>(i));
        else
          ++i;
      }
      const ListId list = out_.lists.intern(stage, tile_needs_);
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

  const TaskGraph& graph_;
  Dependencies out_;
  std::vector<uint32_t> last_use_;                  // last stage that has the tensor in its operand row
  std::vector<std::vector<HistoryEntry>> history_;  // by tensor
  // Of the stage at work:
  std::vector<Link> links_;
  std::vector<uint32_t> link_offsets_;  // by table
  std::vector<uint32_t> edge_of_link_;
  std::vector<Need> tile_needs_;
};

}  // namespace

Result<Dependencies> find_dependencies(const TaskGraph& graph) { return Finder(graph).run(); }

}  // namespace megartp::lowering
