#include "partition/grid_stage.h"

#include <algorithm>

#include "partition/partition_graph.h"

namespace megartp {
namespace {

constexpr uint64_t kBytesPerElement = 4;  // for estimates only

// False when the point lies beyond the tensor.
bool box_of(const GridSplit& split, const std::array<int64_t, 3>& grid, const std::array<int64_t, 3>& point, Box& box) {
  std::array<int64_t, kMaxRank> part{};
  for (size_t axis = 0; axis < 3; ++axis) {
    if (split.map[axis] < 0) continue;
    int64_t& p = part[static_cast<size_t>(split.map[axis])];
    p = p * grid[axis] + point[axis];
  }
  box = Box{};
  for (const DimSplit& dim : split.dims) {
    const int64_t begin = part[box.rank] * dim.block();
    if (begin >= dim.extent) return false;
    box.begin[box.rank] = static_cast<int32_t>(begin);
    box.end[box.rank] = static_cast<int32_t>(std::min(begin + dim.block(), dim.extent));
    ++box.rank;
  }
  return true;
}

uint64_t num_bytes(const Box& box) {
  uint64_t n = kBytesPerElement;
  for (uint32_t d = 0; d < box.rank; ++d) n *= static_cast<uint64_t>(box.end[d] - box.begin[d]);
  return n;
}

}  // namespace

GridSplit make_grid_split(TensorId tensor, const std::array<int64_t, 3>& grid, const std::array<int64_t, 3>& map,
                          const std::vector<int64_t>& extents) {
  GridSplit split{tensor, map, {}};
  for (const int64_t extent : extents) split.dims.push_back({extent, 1});
  for (size_t axis = 0; axis < 3; ++axis)
    if (map[axis] >= 0) split.dims[static_cast<size_t>(map[axis])].num_parts *= grid[axis];
  return split;
}

GridStage::GridStage(std::string stage_name, std::array<int64_t, 3> grid, std::vector<GridSplit> reads,
                     std::vector<GridSplit> writes)
    : grid_(grid), reads_(std::move(reads)), writes_(std::move(writes)) {
  name = std::move(stage_name);
  opcode = kOpcodeAbstract;
  num_tiles = static_cast<uint32_t>(grid[0] * grid[1] * grid[2]);
  for (const auto* splits : {&reads_, &writes_})
    for (const GridSplit& s : *splits)
      if (std::ranges::find(slots, s.tensor) == slots.end()) slots.push_back(s.tensor);
}

void GridStage::tile(uint32_t tile_idx, TileDesc& out) const {
  const int64_t yz = grid_[1] * grid_[2];
  const std::array<int64_t, 3> point{tile_idx / yz, tile_idx % yz / grid_[2], tile_idx % grid_[2]};
  out.set_payload({static_cast<uint32_t>(point[0]), static_cast<uint32_t>(point[1]), static_cast<uint32_t>(point[2])});
  Box box;
  const auto add = [&](const std::vector<GridSplit>& splits, std::vector<Access>& accesses) {
    for (const GridSplit& split : splits) {
      if (!box_of(split, grid_, point, box)) continue;
      accesses.push_back({split.tensor, box});
      out.other_bytes += num_bytes(box);
    }
  };
  add(reads_, out.reads);
  add(writes_, out.writes);
}

}  // namespace megartp
