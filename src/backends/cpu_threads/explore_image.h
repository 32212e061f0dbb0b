// Memory of the exploring mode: all tensors that a plan writes, as one block of bytes, and what single tasks wrote.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/bindings.h"
#include "plan/kernel_plan.h"

namespace megartp {

// Where the written tensors (activations, outputs, states) lie in the block.
class ImageLayout {
 public:
  static constexpr uint64_t kNotInside = ~uint64_t{0};

  explicit ImageLayout(const KernelPlan& plan);
  uint64_t num_bytes() const { return num_bytes_; }
  uint64_t offset(uint32_t tensor) const { return offsets_[tensor]; }
  void load(const Bindings& bindings, std::byte* image) const;
  void store(const Bindings& bindings, const std::byte* image) const;

 private:
  std::vector<uint64_t> offsets_;  // of each tensor, or kNotInside
  uint64_t num_bytes_ = 0;
};

// Ranges of bytes with new values, in the order in which they were written.
struct Writes {
  struct Range {
    uint64_t begin = 0;
    uint64_t length = 0;
    uint64_t first_byte = 0;  // into bytes
  };
  std::vector<Range> ranges;
  std::vector<std::byte> bytes;

  void apply(std::byte* image) const;
  // Appends what differs between two images.
  void add_difference(const std::byte* before, const std::byte* after, uint64_t num_bytes);
};

// Do both write some byte, with different values?
bool clash(const Writes& a, const Writes& b);

// A set of tasks that ran, by the order in which they did.
class RunSet {
 public:
  explicit RunSet(size_t capacity = 0) : words_((capacity + 63) / 64) {}
  bool has(size_t i) const { return (words_[i / 64] >> (i % 64) & 1U) != 0; }
  void add(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void add(const RunSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace megartp
