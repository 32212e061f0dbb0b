// IndexTable: a hash index over values that live in somebody else's vector.
//
// Used by the passes to deduplicate boxes, unit sets and events without one heap block per entry. The table stores
// positions only; the caller gives hash and equality, so a value is kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megartp::lowering {

constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93U;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93U;
  return x ^ (x >> 32);
}
constexpr uint64_t hash_combine(uint64_t seed, uint64_t value) { return mix64(seed ^ (value + 0x9e3779b97f4a7c15U)); }

class IndexTable {
 public:
  static constexpr uint32_t kNone = 0xffffffffU;

  // Position of the value with this hash that satisfies equals(position), or kNone.
  template <class Equals>
  uint32_t find(uint64_t hash, const Equals& equals) const {
    if (slots_.empty()) return kNone;
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      if (slots_[i].position == kNone) return kNone;
      if (slots_[i].tag == tag && equals(slots_[i].position)) return slots_[i].position;
    }
  }

  // Adds a position whose value is not in the table yet.
  void insert(uint64_t hash, uint32_t position) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    place({static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(hash), position});
    ++size_;
  }

  void clear() {
    slots_.clear();
    size_ = 0;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t low = 0;  // low half of the hash: where to go when the table grows
    uint32_t position = kNone;
  };
  void place(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t i = slot.low & mask;
    while (slots_[i].position != kNone) i = (i + 1) & mask;
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.position != kNone) place(slot);
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace megartp::lowering
