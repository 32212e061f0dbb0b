// The analyses behind the scan: what every path, or some path, to an instruction has passed. Used by sass_scan.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "verify/sass/sass_flow.h"
#include "verify/sass/sass_scan.h"
#include "verify/sass/sass_trace.h"

namespace megartp::sass {

// Bits of the state before an instruction. The first group holds on every path, the second on some path.
enum PathBit : uint8_t {
  kWaited = 1,
  kPassedBarrier = 2,  // one that counts, see OrderAnalysis
  kPassedMbarrier = 4,
  kMayHaveWaited = 8,
  kMayHaveTriggered = 16,
  kMayHoldSharedStore = 32,  // an ordinary store to shared memory, and no proxy fence since
  kMayHoldGlobalStore = 64,
};

bool is_wait(const Instruction& in);  // unguarded
bool writes_shared(const Instruction& in);
bool writes_global(const Instruction& in);

class OrderAnalysis {
 public:
  OrderAnalysis(const FlowGraph& flow, const Trace& trace);

  uint8_t state(uint32_t instruction) const { return states_[instruction]; }
  Order order(uint32_t instruction) const;
  // In every CTA some thread passes a wait before it exits. Where a branch depends on the thread's index alone, both of
  // its sides are taken to have threads; everywhere else the worse side counts.
  bool some_thread_waits() const { return some_thread_waits_; }
  // The shortest way from the entry to an instruction that passes no wait; empty also when it is straight.
  Path path_without_wait(uint32_t instruction) const;
  // An ordinary store to shared or global memory from which a path leads to the instruction with no proxy fence; or
  // UINT32_MAX.
  uint32_t unfenced_store_before(uint32_t instruction, bool global) const;
  // Proxy fences: which kinds of earlier stores one orders.
  bool fences(uint32_t instruction, bool global) const;

 private:
  void run();
  uint8_t transfer(uint32_t node, uint8_t state) const;
  bool some_thread_waits_before(const std::function<bool(uint32_t)>& is_goal) const;
  void find_ordering_barriers();

  const FlowGraph& flow_;
  const Trace& trace_;
  std::vector<uint8_t> states_;
  std::vector<bool> counts_;  // barriers that order the waiting thread before those behind them
  bool some_thread_waits_ = false;
};

}  // namespace megartp::sass
