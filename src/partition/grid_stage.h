// GridStage: a stage whose tiles are the points of a grid, and whose boxes are arithmetic on the point.
//
// Made by lower_partition_graph. Nothing is stored per tile, so a stage of a million tiles is as small as one of two.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/op_family.h"

namespace megartp {

// One dim of a tensor as a grid cuts it: blocks of `block` elements, the last one ragged, those beyond `extent` empty.
struct DimSplit {
  int64_t extent = 1;
  int64_t num_parts = 1;

  int64_t block() const { return (extent + num_parts - 1) / num_parts; }
  int64_t num_used_parts() const { return (extent + block() - 1) / block(); }
};

// A tensor as one op's grid cuts it.
struct GridSplit {
  TensorId tensor = kInvalidId;
  std::array<int64_t, 3> map{-1, -1, -1};
  std::vector<DimSplit> dims;
};
GridSplit make_grid_split(TensorId tensor, const std::array<int64_t, 3>& grid, const std::array<int64_t, 3>& map,
                          const std::vector<int64_t>& extents);

class GridStage final : public Stage {
 public:
  GridStage(std::string stage_name, std::array<int64_t, 3> grid, std::vector<GridSplit> reads,
            std::vector<GridSplit> writes);
  void tile(uint32_t tile_idx, TileDesc& out) const override;

 private:
  std::array<int64_t, 3> grid_;
  std::vector<GridSplit> reads_;
  std::vector<GridSplit> writes_;
};

}  // namespace megartp
