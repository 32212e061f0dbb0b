// paint(): what a reader finds in a box after the writes before it.
#include <algorithm>

#include "verify/plan/conflicts.h"

namespace megartp::verify {
namespace {

constexpr uint64_t kMaxCells = uint64_t{1} << 24;

enum class Colour : uint8_t { kBare, kMine, kForeign };

}  // namespace

Cover paint(const Box& target, const std::vector<Painted>& layers, Box& where) {
  std::array<std::vector<int32_t>, kMaxRank> cuts;
  uint64_t num_cells = 1;
  for (uint32_t d = 0; d < target.rank; ++d) {
    cuts[d] = {target.begin[d], target.end[d]};
    for (const Painted& l : layers)
      for (const int32_t v : {l.box.begin[d], l.box.end[d]})
        if (v > target.begin[d] && v < target.end[d]) cuts[d].push_back(v);
    std::ranges::sort(cuts[d]);
    cuts[d].erase(std::ranges::unique(cuts[d]).begin(), cuts[d].end());
    num_cells *= cuts[d].size() - 1;
    if (num_cells > kMaxCells) return Cover::kTooComplex;
  }
  std::vector<Colour> cells(num_cells, Colour::kBare);
  const auto for_each = [&](const Box& box, const auto& visit) {
    std::array<uint32_t, kMaxRank> first{}, last{}, at{};
    for (uint32_t d = 0; d < target.rank; ++d) {
      first[d] = static_cast<uint32_t>(std::ranges::lower_bound(cuts[d], box.begin[d]) - cuts[d].begin());
      last[d] = static_cast<uint32_t>(std::ranges::lower_bound(cuts[d], box.end[d]) - cuts[d].begin());
      last[d] = std::min(last[d], static_cast<uint32_t>(cuts[d].size() - 1));
      if (first[d] >= last[d]) return;
    }
    at = first;
    while (true) {
      uint64_t cell = 0;
      for (uint32_t d = 0; d < target.rank; ++d) cell = cell * (cuts[d].size() - 1) + at[d];
      visit(cell, at);
      uint32_t d = target.rank;
      while (d-- > 0) {
        if (++at[d] < last[d]) break;
        at[d] = first[d];
      }
      if (d == ~uint32_t{0}) return;
    }
  };
  for (const Painted& l : layers)
    for_each(l.box, [&](uint64_t cell, const auto&) { cells[cell] = l.is_own ? Colour::kMine : Colour::kForeign; });
  Cover result = Cover::kWhole;
  for_each(target, [&](uint64_t cell, const std::array<uint32_t, kMaxRank>& at) {
    if (cells[cell] == Colour::kMine || result != Cover::kWhole) return;
    result = cells[cell] == Colour::kBare ? Cover::kBare : Cover::kForeign;
    where.rank = target.rank;
    for (uint32_t d = 0; d < target.rank; ++d) {
      where.begin[d] = cuts[d][at[d]];
      where.end[d] = cuts[d][at[d] + 1];
    }
  });
  return result;
}

}  // namespace megartp::verify
