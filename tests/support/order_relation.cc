#include "support/order_relation.h"

#include <algorithm>

namespace megartp::test {

void BitRows::unite(size_t row, const BitRows& other, size_t other_row) {
  uint64_t* to = words_.data() + row * num_words_;
  const uint64_t* from = other.words_.data() + other_row * num_words_;
  for (size_t i = 0; i < num_words_; ++i) to[i] |= from[i];
}

size_t BitRows::first_missing(size_t row, const BitRows& other, size_t other_row) const {
  const uint64_t* have = words_.data() + row * num_words_;
  const uint64_t* allowed = other.words_.data() + other_row * num_words_;
  for (size_t i = 0; i < num_words_; ++i)
    if (const uint64_t missing = have[i] & ~allowed[i]; missing != 0)
      return i * 64 + static_cast<size_t>(__builtin_ctzll(missing));
  return end_bit();
}

std::vector<uint32_t> last_publications(const TaskGraph& graph) {
  std::vector<uint32_t> last;
  for (const TaskStage& s : graph.stages) {
    uint32_t& highest = last.emplace_back(0);
    TileDesc tile;
    for (uint32_t t = 0; t < s.stage->num_tiles; ++t) {
      tile.clear();
      s.stage->tile(t, tile);
      for (const Access& a : tile.writes) highest = std::max<uint32_t>(highest, a.publication);
    }
    FinalDesc final_tile;
    for (uint32_t f = 0; f < s.stage->num_final_tiles; ++f) {
      final_tile.clear();
      s.stage->final_tile(f, final_tile);
      for (const Access& a : final_tile.writes) highest = std::max<uint32_t>(highest, a.publication);
    }
  }
  return last;
}

OrderRelation::OrderRelation(const TaskGraph& graph) {
  const std::vector<uint32_t> last = last_publications(graph);
  first_bit_.push_back(0);
  for (const Task& task : graph.tasks) first_bit_.push_back(first_bit_.back() + last[task.stage] + 1);
  rows_ = BitRows(graph.tasks.size(), first_bit_.back());
  BitRows event_rows(graph.events.size(), first_bit_.back());
  std::vector<bool> is_used(graph.events.size(), false);
  for (uint32_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    for (uint32_t i = 0; i < task.num_waits; ++i) {
      is_used[task.waits[i].event] = true;
      rows_.unite(t, event_rows, task.waits[i].event);
    }
    for (uint32_t i = 0; i < task.num_signals; ++i) {
      const uint32_t event = task.signals[i].event;
      is_sound_ = is_sound_ && !is_used[event];
      event_rows.unite(event, rows_, t);
      // What a task sends, it sends in order.
      for (uint32_t p = 0; p <= std::min(abi::publication(task.signals[i]), last[task.stage]); ++p)
        event_rows.set(event, first_bit_[t] + p);
    }
  }
}

}  // namespace megartp::test
