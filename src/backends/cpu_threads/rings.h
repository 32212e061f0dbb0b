// The dynamic scheduler's queues. All are bounded and never overwrite: a full queue refuses, and its writer waits or
// keeps the item. Positions only grow, so nothing is reset between runs.
//
//   Ring           many writers, one or more readers; each item is taken once
//   BroadcastRing  many writers; every one of `num_readers` readers sees every item, each in the same order
//
// Each slot has a turn number. In a Ring of C slots, position p (slot p mod C) may be written when turn = p, holds an
// item when turn = p + 1, and may be written by the next round when turn = p + C.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "backends/cpu_threads/counters.h"

namespace megartp {

template <class T, class Atomics = StdAtomics>
class Ring {
 public:
  explicit Ring(uint32_t capacity) : mask_(capacity - 1), slots_(std::make_unique<Slot[]>(capacity)) {
    for (uint32_t i = 0; i < capacity; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
  }

  // False when full.
  bool try_push(T item) {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    while (true) {
      Slot& slot = slots_[position & mask_];
      // acquire: pairs with the release of `turn` in try_pop; its reader is through with the slot.
      const uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == position) {
        if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          slot.item.set(item);
          // release: pairs with the acquire in try_pop; publishes the item and what its writer has seen.
          slot.turn.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (turn < position) {
        return false;  // the round before has not been read yet
      } else {
        position = tail_.load(std::memory_order_relaxed);
      }
    }
  }

  std::optional<T> try_pop() {
    uint64_t position = head_.load(std::memory_order_relaxed);
    while (true) {
      Slot& slot = slots_[position & mask_];
      // acquire: pairs with the release of `turn` in try_push.
      const uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == position + 1) {
        if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          const T item = slot.item.get();
          // release: pairs with the acquire in try_push; the slot may be written again.
          slot.turn.store(position + mask_ + 1, std::memory_order_release);
          return item;
        }
      } else if (turn < position + 1) {
        return std::nullopt;
      } else {
        position = head_.load(std::memory_order_relaxed);
      }
    }
  }

  // For reports and load balancing only: neither exact nor ordered.
  uint64_t size_hint() const {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    return tail > head ? tail - head : 0;
  }

 private:
  struct Slot {
    typename Atomics::template Atomic<uint64_t> turn;
    typename Atomics::template Plain<T> item;
  };
  uint64_t mask_;
  std::unique_ptr<Slot[]> slots_;
  alignas(64) typename Atomics::template Atomic<uint64_t> head_;
  alignas(64) typename Atomics::template Atomic<uint64_t> tail_;
};

template <class T, class Atomics = StdAtomics>
class BroadcastRing {
 public:
  BroadcastRing(uint32_t capacity, uint32_t num_readers)
      : mask_(capacity - 1),
        num_readers_(num_readers),
        slots_(std::make_unique<Slot[]>(capacity)),
        cursors_(std::make_unique<Cursor[]>(num_readers)) {
    for (uint32_t i = 0; i < capacity; ++i) slots_[i].turn.store(0, std::memory_order_relaxed);
    for (uint32_t r = 0; r < num_readers; ++r) cursors_[r].position.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
  }

  // False when full: the slowest reader has yet to read the slot.
  bool try_push(T item) {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    while (true) {
      for (uint32_t r = 0; r < num_readers_; ++r) {
        // acquire: pairs with the release in try_read; that reader is through with the slot.
        const uint64_t read = cursors_[r].position.load(std::memory_order_acquire);
        // A tail that is older than a cursor is stale; the exchange below then fails.
        if (read <= position && position - read > mask_) return false;
      }
      if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) break;
    }
    Slot& slot = slots_[position & mask_];
    slot.item.set(item);
    // release: pairs with the acquire in try_read; publishes the item and what its writer has seen.
    slot.turn.store(position + 1, std::memory_order_release);
    return true;
  }

  // The next item that this reader has not seen.
  std::optional<T> try_read(uint32_t reader) {
    Cursor& cursor = cursors_[reader];
    const uint64_t position = cursor.position.load(std::memory_order_relaxed);
    Slot& slot = slots_[position & mask_];
    // acquire: pairs with the release of `turn` in try_push.
    if (slot.turn.load(std::memory_order_acquire) != position + 1) return std::nullopt;
    const T item = slot.item.get();
    // release: pairs with the acquire in try_push; the slot may be written again once all readers are this far.
    cursor.position.store(position + 1, std::memory_order_release);
    return item;
  }

  // For reports only.
  uint64_t size_hint(uint32_t reader) const {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    const uint64_t read = cursors_[reader].position.load(std::memory_order_relaxed);
    return tail > read ? tail - read : 0;
  }

 private:
  struct Slot {
    typename Atomics::template Atomic<uint64_t> turn;
    typename Atomics::template Plain<T> item;
  };
  struct alignas(64) Cursor {
    typename Atomics::template Atomic<uint64_t> position;
  };
  uint64_t mask_;
  uint32_t num_readers_;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Cursor[]> cursors_;
  alignas(64) typename Atomics::template Atomic<uint64_t> tail_;
};

}  // namespace megartp
