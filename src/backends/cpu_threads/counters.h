// Event and join counters of cpu-threads.
//
// Counters only grow. Run e (from 1) adds total(event) to each event; a wait of that run is satisfied when
//   counter >= threshold + (e - 1) * total(event).
// Each counter has a cache line of its own: neighbours are signalled by different workers.
//
// `Atomics` says what an atomic is: the standard's, or the model checker's in tests/relacy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace megartp {

struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  // A plain variable that some atomic operation protects; `get` and `set` let a checker see the accesses.
  template <class T>
  struct Plain {
    T value{};
    T get() const { return value; }
    void set(T v) { value = v; }
  };
};

template <class Atomics>
class BasicCounters {
 public:
  static constexpr uint32_t kNobody = 0xffffffffU;

  explicit BasicCounters(size_t count) : size_(count), lines_(std::make_unique<Line[]>(count)) { reset(); }

  // What the counter was before. release: pairs with the acquire load in `reached`; publishes everything the signalling
  // tile wrote. acquire: whoever completes a count has seen what its other signallers wrote, and may pass it on.
  uint64_t signal(uint32_t i, uint32_t increment, uint32_t task) {
    lines_[i].last_task.store(task, std::memory_order_relaxed);
    return lines_[i].value.fetch_add(increment, std::memory_order_acq_rel);
  }

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
  uint32_t last_task(uint32_t i) const { return lines_[i].last_task.load(std::memory_order_relaxed); }

  // Only while no worker runs.
  void reset() {
    for (size_t i = 0; i < size_; ++i) {
      lines_[i].value.store(0, std::memory_order_relaxed);
      lines_[i].last_task.store(kNobody, std::memory_order_relaxed);
    }
  }

 private:
  struct alignas(64) Line {
    typename Atomics::template Atomic<uint64_t> value;
    typename Atomics::template Atomic<uint32_t> last_task;
  };
  size_t size_;
  std::unique_ptr<Line[]> lines_;
};

using Counters = BasicCounters<StdAtomics>;

}  // namespace megartp
