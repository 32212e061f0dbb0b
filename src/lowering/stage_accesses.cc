#include "lowering/stage_accesses.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::lowering {
namespace {

uint64_t hash_box(const Box& box) {
  uint64_t hash = box.rank;
  for (uint32_t d = 0; d < box.rank; ++d)
    hash = (hash ^ (uint64_t{static_cast<uint32_t>(box.begin[d])} << 32 | static_cast<uint32_t>(box.end[d]))) *
           0xd6e8feb86659fd93U;
  return mix64(hash);
}

bool is_empty(const Box& box) {
  for (uint32_t d = 0; d < box.rank; ++d)
    if (box.begin[d] >= box.end[d]) return true;
  return box.rank == 0;
}

// CSR from (row, value) pairs, stable in the order of the pairs.
void to_csr(std::span<const std::pair<uint32_t, uint32_t>> pairs, size_t rows, std::vector<uint32_t>& offsets,
            std::vector<uint32_t>& values) {
  offsets.assign(rows + 1, 0);
  for (const auto& [row, value] : pairs) ++offsets[row + 1];
  for (size_t i = 1; i <= rows; ++i) offsets[i] += offsets[i - 1];
  values.resize(pairs.size());
  std::vector<uint32_t> next(offsets.begin(), offsets.end() - 1);
  for (const auto& [row, value] : pairs) values[next[row]++] = value;
}

class Collector {
 public:
  Collector(const TaskGraph& graph, uint32_t stage_idx)
      : graph_(graph), task_stage_(graph.stages[stage_idx]), stage_(*task_stage_.stage) {}

  Result<StageAccesses> run() {
    MEGARTP_TRY(collect());
    // A tensor of the operand row that no tile names counts as read whole by every tile: a family that leaves out its
    // weights or positions stays right when some op computes them.
    undeclared_ = undeclared_operands();
    if (!undeclared_.empty()) {
      out_ = {};
      building_.clear();
      MEGARTP_TRY(collect());
    }
    finish();
    return std::move(out_);
  }

 private:
  struct Building {
    IndexTable lookup;
    uint32_t last_box = 0;  // neighbouring tiles often read the same
    std::vector<std::pair<uint32_t, uint32_t>> box_touchers;
  };

  Status collect() {
    out_.is_fused = stage_.num_final_tiles > 0;
    out_.num_units = out_.is_fused ? stage_.num_final_tiles : stage_.num_tiles;
    const Toucher tile_toucher = out_.is_fused ? Toucher::kGroup : Toucher::kTile;
    TileDesc tile;
    tile.wants_costs = false;
    out_.tile_offsets.reserve(stage_.num_tiles + 1);
    out_.tile_offsets.push_back(0);
    for (uint32_t t = 0; t < stage_.num_tiles; ++t) {
      tile.clear();
      stage_.tile(t, tile);
      if (out_.is_fused) out_.group_of_tile.push_back(tile.join_group);
      tile.reads.insert(tile.reads.end(), undeclared_.begin(), undeclared_.end());
      const uint32_t toucher = out_.is_fused ? tile.join_group : t;
      if (!add(tile.reads, false, tile_toucher, toucher, out_.tile_records) ||
          !add(tile.writes, true, tile_toucher, toucher, out_.tile_records))
        return fault();
      out_.tile_offsets.push_back(static_cast<uint32_t>(out_.tile_records.size()));
    }
    if (out_.is_fused) MEGARTP_TRY(add_finals());
    return {};
  }

  std::vector<Access> undeclared_operands() const {
    std::vector<Access> missing;
    for (const TensorId t : stage_.slots) {
      if (t >= graph_.tensors.size()) continue;  // an empty slot
      const ConcreteTensor& tensor = graph_.tensors[t];
      if (tensor.storage == Storage::kWeight || tensor.storage == Storage::kRuntimeArg) continue;
      if (std::ranges::any_of(out_.tables, [&](const auto& table) { return table->tensor == t; })) continue;
      Box whole;
      for (const int64_t d : tensor.dims) whole.end[whole.rank++] = static_cast<int32_t>(d);
      missing.push_back({t, whole});
    }
    return missing;
  }

  Status add_finals() {
    out_.groups = MEGARTP_TRY(collect_groups(stage_, out_.group_of_tile));
    FinalDesc final_tile;
    out_.group_offsets.push_back(0);
    for (uint32_t g = 0; g < stage_.num_join_groups; ++g) {
      for (uint32_t i = out_.groups.final_offsets[g]; i < out_.groups.final_offsets[g + 1]; ++i) {
        const uint32_t f = out_.groups.finals[i];
        final_tile.clear();
        stage_.final_tile(f, final_tile);
        if (!add(final_tile.reads, false, Toucher::kFinal, f, out_.group_records) ||
            !add(final_tile.writes, true, Toucher::kFinal, f, out_.group_records))
          return fault();
      }
      out_.group_offsets.push_back(static_cast<uint32_t>(out_.group_records.size()));
    }
    return {};
  }

  // False when the family is at fault; fault() then says how. (A Status per access would cost more than all the rest.)
  bool add(const std::vector<Access>& accesses, bool is_write, Toucher toucher_kind, uint32_t toucher,
           std::vector<AccessRecord>& records) {
    uint32_t hint = is_write ? 1 : 0;  // the n-th access of a tile mostly goes where that of the tile before went
    for (const Access& access : accesses) {
      if (!is_sound(access, is_write)) return false;
      if (is_write) out_.last_publication = std::max(out_.last_publication, access.publication);
      const Storage storage = graph_.tensors[access.tensor].storage;
      if (storage == Storage::kWeight || storage == Storage::kRuntimeArg || is_empty(access.box)) continue;
      const uint32_t table_idx = find_table(access, is_write, toucher_kind, hint);
      AccessTable& table = *out_.tables[table_idx];
      Building& building = building_[table_idx];
      table.is_scatter = table.is_scatter || access.scatter;
      const uint32_t box = find_box(table, building, access.box);
      if (building.box_touchers.empty() || building.box_touchers.back() != std::pair{box, toucher})
        building.box_touchers.emplace_back(box, toucher);
      records.push_back({table_idx, box});
      hint = table_idx + 1;
    }
    return true;
  }

  bool is_sound(const Access& access, bool is_write) {
    const auto fails = [&](const char* how) {
      fault_ = how;
      faulty_tensor_ = access.tensor;
      return false;
    };
    if (std::ranges::find(stage_.slots, access.tensor) == stage_.slots.end() || access.tensor >= graph_.tensors.size())
      return fails("touches a tensor outside of its operand row");
    const ConcreteTensor& tensor = graph_.tensors[access.tensor];
    if (is_write && (tensor.storage == Storage::kWeight || tensor.storage == Storage::kRuntimeArg))
      return fails("writes a read-only tensor");
    bool inside = access.box.rank == tensor.dims.size();
    for (uint32_t d = 0; inside && d < access.box.rank; ++d)
      inside = access.box.begin[d] >= 0 && access.box.end[d] <= tensor.dims[d];
    return inside || fails("touches a region outside of its tensor");
  }

  tl::unexpected<Error> fault() const {
    const bool exists = faulty_tensor_ < graph_.tensors.size();
    return make_error(ErrorCode::kInternal,
                      fmt::format("stage '{}' {} (tensor '{}')", stage_.name, fault_,
                                  exists ? graph_.tensors[faulty_tensor_].name : std::to_string(faulty_tensor_)));
  }

  uint32_t find_table(const Access& access, bool is_write, Toucher toucher, uint32_t hint) {
    const auto matches = [&](const AccessTable& t) {
      return t.tensor == access.tensor && t.is_write == is_write && t.toucher == toucher &&
             (!is_write || t.publication == access.publication);
    };
    if (hint < out_.tables.size() && matches(*out_.tables[hint])) return hint;
    for (uint32_t i = 0; i < out_.tables.size(); ++i)
      if (matches(*out_.tables[i])) return i;
    auto table = std::make_shared<AccessTable>();
    table->tensor = access.tensor;
    table->is_write = is_write;
    table->publication = is_write ? access.publication : uint8_t{0};
    table->toucher = toucher;
    out_.tables.push_back(std::move(table));
    building_.emplace_back();
    return static_cast<uint32_t>(out_.tables.size() - 1);
  }

  static uint32_t find_box(AccessTable& table, Building& building, const Box& box) {
    if (!table.boxes.empty() && table.boxes[building.last_box] == box) return building.last_box;
    const uint64_t hash = hash_box(box);
    building.last_box = building.lookup.find(hash, [&](uint32_t i) { return table.boxes[i] == box; });
    if (building.last_box == IndexTable::kNone) {
      building.last_box = static_cast<uint32_t>(table.boxes.size());
      table.boxes.push_back(box);
      building.lookup.insert(hash, building.last_box);
    }
    return building.last_box;
  }

  void finish() {
    for (size_t i = 0; i < out_.tables.size(); ++i) {
      AccessTable& table = *out_.tables[i];
      to_csr(building_[i].box_touchers, table.boxes.size(), table.toucher_offsets, table.touchers);
      table.boxes.shrink_to_fit();
      // Reads carry no publication of their own; the last one of the task says that they are over.
      if (!table.is_write) table.publication = out_.last_publication;
    }
  }

  const TaskGraph& graph_;
  const TaskStage& task_stage_;
  const Stage& stage_;
  StageAccesses out_;
  std::vector<Building> building_;
  const char* fault_ = "";
  TensorId faulty_tensor_ = kInvalidId;
  std::vector<Access> undeclared_;  // read by every tile, though no tile says so
};

}  // namespace

Result<StageGroups> collect_groups(const Stage& stage, std::span<const uint32_t> group_of_tile) {
  StageGroups groups;
  const uint32_t num_groups = stage.num_join_groups;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  pairs.reserve(std::max<size_t>(group_of_tile.size(), stage.num_final_tiles));
  const auto check = [&](const std::vector<uint32_t>& offsets, std::string_view what) -> Status {
    for (uint32_t g = 0; g < num_groups; ++g)
      if (offsets[g] == offsets[g + 1])
        return make_error(ErrorCode::kInternal,
                          fmt::format("stage '{}': join group {} has no {}", stage.name, g, what));
    return {};
  };
  const auto outside = [&](std::string_view what, uint32_t idx) {
    return make_error(ErrorCode::kInternal, fmt::format("stage '{}': {} {} has no join group", stage.name, what, idx));
  };
  for (uint32_t t = 0; t < group_of_tile.size(); ++t) {
    if (group_of_tile[t] >= num_groups) return outside("tile", t);
    pairs.emplace_back(group_of_tile[t], t);
  }
  to_csr(pairs, num_groups, groups.tile_offsets, groups.tiles);
  MEGARTP_TRY(check(groups.tile_offsets, "tiles"));
  pairs.clear();
  FinalDesc final_tile;
  groups.group_of_final.reserve(stage.num_final_tiles);
  for (uint32_t f = 0; f < stage.num_final_tiles; ++f) {
    final_tile.clear();
    stage.final_tile(f, final_tile);
    if (final_tile.join_group >= num_groups) return outside("final tile", f);
    groups.group_of_final.push_back(final_tile.join_group);
    pairs.emplace_back(final_tile.join_group, f);
  }
  to_csr(pairs, num_groups, groups.final_offsets, groups.finals);
  MEGARTP_TRY(check(groups.final_offsets, "final tiles"));
  return groups;
}

Result<StageAccesses> collect_accesses(const TaskGraph& graph, uint32_t stage_idx) {
  return Collector(graph, stage_idx).run();
}

}  // namespace megartp::lowering
