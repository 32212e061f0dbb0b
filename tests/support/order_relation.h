// Which tasks of a graph events put before which others: the closure of trigger -> event -> wait, as bits.
//
// For tests: dependency_oracle.h asks it about every pair of tasks that must be ordered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lowering/task_graph.h"

namespace megartp::test {

// Rows of bits.
class BitRows {
 public:
  BitRows() = default;
  BitRows(size_t num_rows, size_t num_bits) : num_words_((num_bits + 63) / 64), words_(num_rows * num_words_, 0) {}
  void set(size_t row, size_t bit) { words_[row * num_words_ + bit / 64] |= uint64_t{1} << bit % 64; }
  bool test(size_t row, size_t bit) const { return (words_[row * num_words_ + bit / 64] >> bit % 64 & 1) != 0; }
  void unite(size_t row, const BitRows& other, size_t other_row);
  // The first bit of the row that other_row lacks, or num_bits rounded up when there is none.
  size_t first_missing(size_t row, const BitRows& other, size_t other_row) const;
  size_t end_bit() const { return num_words_ * 64; }

 private:
  size_t num_words_ = 0;
  std::vector<uint64_t> words_;
};

// Which tasks events put before which. Task ids must be topological (is_sound says whether they are).
class OrderRelation {
 public:
  explicit OrderRelation(const TaskGraph& graph);
  bool is_sound() const { return is_sound_; }
  // The early task (and its whole join group) has sent `publication` before the late one starts.
  bool is_before(uint32_t early, uint32_t publication, uint32_t late) const {
    return rows_.test(late, first_bit_[early] + publication);
  }
  // The early task is over before the late one starts.
  bool is_before(uint32_t early, uint32_t late) const { return rows_.test(late, first_bit_[early + 1] - 1); }

 private:
  std::vector<size_t> first_bit_;  // by task, and an end: one bit a publication
  BitRows rows_;                   // by task: what was sent before it starts
  bool is_sound_ = true;
};

// The highest publication of each stage's writes.
std::vector<uint32_t> last_publications(const TaskGraph& graph);

}  // namespace megartp::test
