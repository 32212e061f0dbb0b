#include "lowering/box_index.h"

#include <algorithm>

namespace megartp::lowering {

BoxIndex::BoxIndex(std::span<const Box> boxes) {
  if (boxes.empty()) return;
  rank_ = boxes[0].rank;
  uint64_t num_cells = 1;
  const uint64_t dense_limit = 4 * boxes.size() + 64;
  for (uint32_t d = 0; d < rank_; ++d) {
    std::vector<int32_t>& cuts = cuts_[d];
    cuts.reserve(boxes.size() * 2);
    for (const Box& b : boxes) {
      // Tilings come in order: most values repeat the last two.
      for (const int32_t v : {b.begin[d], b.end[d]})
        if (const size_t n = cuts.size(); (n < 1 || cuts[n - 1] != v) && (n < 2 || cuts[n - 2] != v)) cuts.push_back(v);
    }
    std::ranges::sort(cuts);
    cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
    num_cells = std::min(num_cells * (cuts.size() - 1), dense_limit + 1);
  }
  uint32_t stride = 1;
  for (uint32_t d = rank_; d-- > 0;) {
    strides_[d] = stride;
    stride *= static_cast<uint32_t>(cuts_[d].size() - 1);
  }
  std::vector<CellRange> ranges;
  ranges.reserve(boxes.size());
  uint64_t entries = 0;
  for (const Box& b : boxes) {
    ranges.push_back(cells(b));
    uint64_t n = 1;
    for (uint32_t d = 0; d < rank_; ++d)
      n = std::min(n * (ranges.back().end[d] - ranges.back().begin[d]), 4 * dense_limit);
    entries += n;
  }
  if (num_cells <= dense_limit && entries <= 4 * dense_limit)
    build_dense(ranges, num_cells);
  else
    build_sorted(ranges);
}

CellRange BoxIndex::cells(const Box& query) const {
  CellRange range;
  for (uint32_t d = 0; d < rank_; ++d) {
    const std::vector<int32_t>& cuts = cuts_[d];
    if (query.end[d] <= cuts.front() || query.begin[d] >= cuts.back() || query.begin[d] >= query.end[d])
      return {.begin = {}, .end = {}, .empty = true};
    // Cell i is [cuts[i], cuts[i + 1]).
    const auto first = std::ranges::upper_bound(cuts, query.begin[d]);
    range.begin[d] = first == cuts.begin() ? 0 : static_cast<uint32_t>(first - cuts.begin()) - 1;
    const auto last = std::ranges::lower_bound(cuts, query.end[d]);
    range.end[d] = std::min(static_cast<uint32_t>(last - cuts.begin()), static_cast<uint32_t>(cuts.size() - 1));
  }
  range.empty = rank_ == 0;
  return range;
}

template <class Visit>
void BoxIndex::for_each_cell(const CellRange& range, const Visit& visit) const {
  std::array<uint32_t, kMaxRank> at = range.begin;
  while (true) {
    uint32_t cell = 0;
    for (uint32_t d = 0; d < rank_; ++d) cell += at[d] * strides_[d];
    // The last dimension has stride 1.
    const uint32_t last = rank_ - 1;
    for (uint32_t i = range.begin[last]; i < range.end[last]; ++i, ++cell)
      if (!visit(cell)) return;
    uint32_t d = last;
    while (d-- > 0) {
      if (++at[d] < range.end[d]) break;
      at[d] = range.begin[d];
    }
    if (d == ~uint32_t{0}) return;
  }
}

void BoxIndex::build_dense(std::span<const CellRange> ranges, uint64_t num_cells) {
  cell_offsets_.assign(num_cells + 1, 0);
  for (const CellRange& r : ranges)
    if (!r.empty) for_each_cell(r, [&](uint32_t cell) { return ++cell_offsets_[cell + 1], true; });
  for (size_t i = 1; i < cell_offsets_.size(); ++i) cell_offsets_[i] += cell_offsets_[i - 1];
  cell_boxes_.resize(cell_offsets_.back());
  std::vector<uint32_t> next(cell_offsets_.begin(), cell_offsets_.end() - 1);
  for (uint32_t box = 0; box < ranges.size(); ++box)
    if (!ranges[box].empty)
      for_each_cell(ranges[box], [&](uint32_t cell) { return cell_boxes_[next[cell]++] = box, true; });
}

void BoxIndex::build_sorted(std::span<const CellRange> ranges) {
  for (uint32_t d = 1; d < rank_; ++d)
    if (cuts_[d].size() > cuts_[scan_dim_].size()) scan_dim_ = d;
  sorted_.reserve(ranges.size());
  for (uint32_t box = 0; box < ranges.size(); ++box)
    if (!ranges[box].empty) sorted_.push_back({ranges[box], box, 0});
  std::ranges::stable_sort(sorted_, {}, [&](const Sorted& s) { return s.cells.begin[scan_dim_]; });
  uint32_t max_end = 0;
  for (Sorted& s : sorted_) s.max_end = max_end = std::max(max_end, s.cells.end[scan_dim_]);
}

bool BoxIndex::find(const CellRange& range, std::vector<uint32_t>& out, uint64_t& work, uint64_t max_work) const {
  if (range.empty) return true;
  if (is_dense()) {
    for_each_cell(range, [&](uint32_t cell) {
      work += 1 + cell_offsets_[cell + 1] - cell_offsets_[cell];
      out.insert(out.end(), cell_boxes_.begin() + cell_offsets_[cell], cell_boxes_.begin() + cell_offsets_[cell + 1]);
      return work <= max_work;
    });
    return work <= max_work;
  }
  const auto end = std::ranges::lower_bound(sorted_, range.end[scan_dim_], {},
                                            [&](const Sorted& s) { return s.cells.begin[scan_dim_]; });
  for (auto it = end; it != sorted_.begin();) {
    --it;
    if (it->max_end <= range.begin[scan_dim_]) break;
    if (++work > max_work) return false;
    bool overlaps = true;
    for (uint32_t d = 0; d < rank_; ++d)
      overlaps = overlaps && it->cells.begin[d] < range.end[d] && range.begin[d] < it->cells.end[d];
    if (overlaps) out.push_back(it->box);
  }
  return true;
}

}  // namespace megartp::lowering
