// StageAccesses: every region that one stage touches, deduplicated; AccessTable: those of one tensor, one kind.
//
// Built once per stage by calling tile() and final_tile(), then used twice: as consumer (records: which tile touches
// which box) and, for as long as later stages may touch the tensors, as producer (tables: which units touch a box).
// Tiles with the same box share one entry, so dependencies are computed per distinct box, never per pair of tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lowering/box_index.h"
#include "lowering/task_graph.h"
#include "lowering/unit_sets.h"

namespace megartp::lowering {

// Who touched a box, and so which units of the stage tell that it is done.
enum class Toucher : uint8_t {
  kTile,   // plain stage: the tile is the unit
  kGroup,  // tile of a fused stage: all final tiles of its join group are
  kFinal,  // the final tile is the unit
};

struct AccessTable {
  TensorId tensor = kInvalidId;
  bool is_write = false;
  bool is_scatter = false;
  uint8_t publication = 0;
  Toucher toucher = Toucher::kTile;
  std::vector<Box> boxes;                 // distinct
  std::vector<uint32_t> toucher_offsets;  // CSR box -> tiles, groups or final tiles
  std::vector<uint32_t> touchers;

  const BoxIndex& index() const {
    if (!index_) index_ = std::make_unique<BoxIndex>(boxes);
    return *index_;
  }

 private:
  mutable std::unique_ptr<BoxIndex> index_;
};

// What final tiles belong to which join group, and which tiles form it.
struct StageGroups {
  std::vector<uint32_t> group_of_final;
  std::vector<uint32_t> final_offsets;  // CSR group -> final tiles
  std::vector<uint32_t> finals;
  std::vector<uint32_t> tile_offsets;  // CSR group -> tiles
  std::vector<uint32_t> tiles;
};

struct AccessRecord {
  uint32_t table = 0;
  uint32_t box = 0;
};

struct StageAccesses {
  bool is_fused = false;
  uint32_t num_units = 0;
  uint8_t last_publication = 0;  // sent when a task is over, so it also tells that its reads are
  std::vector<std::shared_ptr<AccessTable>> tables;
  // As consumer: records of tile i, and of join group g (its final tiles), which every tile of the group must wait for.
  std::vector<uint32_t> tile_offsets;
  std::vector<AccessRecord> tile_records;
  std::vector<uint32_t> group_offsets;
  std::vector<AccessRecord> group_records;
  std::vector<uint32_t> group_of_tile;  // fused only
  StageGroups groups;
};

// Groups of a fused stage. Errors (kInternal, naming the stage): a tile or final tile without a valid group, a group
// without tiles or final tiles.
Result<StageGroups> collect_groups(const Stage& stage, std::span<const uint32_t> group_of_tile);

// `join_groups` are the tiles' groups within the stage. Accesses to weights and arguments are left out (nothing writes
// them). Errors (kInternal): an access outside of its tensor or of the stage's operand row, a write to a read-only
// tensor.
Result<StageAccesses> collect_accesses(const TaskGraph& graph, uint32_t stage_idx);

}  // namespace megartp::lowering
