// Event and join counters of cpu-threads.
//
// Counters only grow. Run e (from 1) adds total(event) to each event; a wait of that run is satisfied when
//   counter >= threshold + (e - 1) * total(event).
// Each counter has a cache line of its own: neighbours are signalled by different workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace megartp {

class Counters {
 public:
  explicit Counters(size_t count) : size_(count), lines_(std::make_unique<Line[]>(count)) {}

  // release: pairs with the acquire load in `reached`; publishes everything the signalling tile wrote.
  void signal(uint32_t i, uint32_t increment) { lines_[i].value.fetch_add(increment, std::memory_order_release); }

  // acquire: pairs with `signal` of every producer (their adds form one release sequence).
  bool reached(uint32_t i, uint64_t threshold) const {
    return lines_[i].value.load(std::memory_order_acquire) >= threshold;
  }

  // Arrives at a join: true for the arrival that completes a multiple of `count`. acq_rel: the last arriver sees what
  // the others wrote before they arrived.
  bool join(uint32_t i, uint32_t count) {
    return (lines_[i].value.fetch_add(1, std::memory_order_acq_rel) + 1) % count == 0;
  }

  // For reports only.
  uint64_t peek(uint32_t i) const { return lines_[i].value.load(std::memory_order_relaxed); }

  // Only while no worker runs.
  void reset() {
    for (size_t i = 0; i < size_; ++i) lines_[i].value.store(0, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Line {
    std::atomic<uint64_t> value{0};
  };
  size_t size_;
  std::unique_ptr<Line[]> lines_;
};

}  // namespace megartp
