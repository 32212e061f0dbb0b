// BoxIndex: which boxes of one (stage, tensor) overlap a query box, without looking at all of them.
//
// The begins and ends of all boxes cut every dimension into intervals, so each cell of the resulting grid lies wholly
// inside or wholly outside of every box:
//
//   boxes   [----A----)[----B----)      [--C--)
//   cells   |    0    |    1    |   2   |  3  |
//
// Two queries that touch the same cells therefore overlap the same boxes (CellRange is a key to remember answers by).
// When the grid has about as many cells as there are boxes (regular tilings), each cell lists its boxes; otherwise
// (scattered boxes) a scan over boxes sorted by begin, cut short by a running maximum of ends, answers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/op_family.h"

namespace megartp::lowering {

// Half-open range of cells per dimension; `empty` when the query lies outside of every box.
struct CellRange {
  std::array<uint32_t, kMaxRank> begin{};
  std::array<uint32_t, kMaxRank> end{};
  bool empty = false;
  friend bool operator==(const CellRange&, const CellRange&) = default;
};

class BoxIndex {
 public:
  BoxIndex() = default;
  // Boxes of one tensor (same rank). The index keeps no reference to them.
  explicit BoxIndex(std::span<const Box> boxes);

  CellRange cells(const Box& query) const;
  // Appends the boxes that overlap the range (one may appear several times). Adds the steps taken to `work`; gives up
  // with false, having appended some, once work exceeds max_work.
  bool find(const CellRange& range, std::vector<uint32_t>& out, uint64_t& work, uint64_t max_work) const;
  bool is_dense() const { return !cell_offsets_.empty(); }

 private:
  struct Sorted {
    CellRange cells;
    uint32_t box = 0;
    uint32_t max_end = 0;  // largest end in the scan dimension up to here
  };
  void build_dense(std::span<const CellRange> ranges, uint64_t num_cells);
  void build_sorted(std::span<const CellRange> ranges);
  template <class Visit>
  void for_each_cell(const CellRange& range, const Visit& visit) const;

  uint32_t rank_ = 0;
  std::array<std::vector<int32_t>, kMaxRank> cuts_;  // sorted begins and ends
  std::array<uint32_t, kMaxRank> strides_{};
  std::vector<uint32_t> cell_offsets_;  // dense: CSR cell -> boxes
  std::vector<uint32_t> cell_boxes_;
  std::vector<Sorted> sorted_;  // otherwise
  uint32_t scan_dim_ = 0;
};

}  // namespace megartp::lowering
