// HappensBefore: what is certainly over when a node starts, as one vector clock a node.
//
//   clock(node)[w] = position in worker w's queue up to which everything is over in every execution
//
// A position is slot * levels + level: a task that publishes in parts, or whose join group goes on after it, is over
// step by step.
//
//   alone      publication p sent: level p + 1        all over: level `levels`
//   a member   its own part done: level 1, the group's last arriver has sent publication p: level p + 2, all over
//
// The group is through when all its members are all over, because one of them is the last arriver. Members' queues run
// on after their own part unless they are the last, so a follower knows no more than that of the others.
//
// A wait that leaves signals out (threshold below the sum) is exact too: an earlier thing is certain only if the
// signals that can be there without it stay below the threshold. Where such a wait could be satisfied before some
// signaller has run, several passes find the greatest solution.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verify/plan/nodes.h"

namespace megartp::verify {

// Where a worker stands that can go no further.
struct StuckWorker {
  uint32_t worker = 0;
  uint32_t task = 0;
  uint32_t wait = 0;  // index of the wait that is not satisfied
};

class HappensBefore {
 public:
  // `last_publication`: by operand row, the highest one that its tasks write.
  // Waits for `ignored_events` count for nothing (none when empty).
  HappensBefore(const PlanNodes& nodes, std::vector<uint32_t> last_publication, std::vector<bool> ignored_events = {});

  // Runs the plan. False: some tasks never start (stuck()), or the waits that leave signals out are too entangled to
  // decide (is_undecided()); clocks mean nothing then.
  bool run();
  const std::vector<StuckWorker>& stuck() const { return stuck_; }
  bool is_undecided() const { return is_undecided_; }
  bool has_run(uint32_t task) const { return started_[task]; }
  uint32_t num_passes() const { return num_passes_; }

  std::span<const uint32_t> clock(uint32_t node) const {
    return std::span(clocks_).subspan(size_t{node} * num_workers_, num_workers_);
  }
  // Position at which an access of a task is over: a write of this publication, or (all) everything that it does.
  // Reads are over with everything.
  static constexpr uint32_t kAll = 0xffffffffU;
  uint32_t task_position(uint32_t task, uint32_t publication) const;
  // The same of the last arriver of a group, in the queue of one of its members: it holds when it holds in all.
  uint32_t group_position(uint32_t member, uint32_t publication) const;

  // Everything that the access touches is over before `later` starts.
  bool is_before(uint32_t node, uint32_t publication, uint32_t later) const;

 private:
  static constexpr uint32_t kTop = 0xffffffffU;  // above any position: not run yet
  void pass();
  bool try_start(uint32_t worker);
  void finish(uint32_t task);
  void send(uint32_t node, const abi::Instruction& instruction);
  void add_wait(const abi::Wait& wait, uint32_t* clock);
  void done_clock(uint32_t node, uint32_t publication, uint32_t* out) const;
  uint32_t base(uint32_t task) const { return nodes_->slot(task) * levels_; }
  uint32_t* row(std::vector<uint32_t>& rows, size_t i) { return rows.data() + i * num_workers_; }

  const PlanNodes* nodes_;
  std::vector<uint32_t> last_publication_;
  std::vector<bool> is_ignored_;  // by event
  uint32_t num_workers_;
  uint32_t levels_ = 1;
  std::vector<uint32_t> clocks_;         // by node
  std::vector<uint32_t> worker_clocks_;  // what is over before the worker's next slot
  std::vector<uint32_t> event_clocks_;   // of the signals that have arrived
  std::vector<uint64_t> arrived_;        // by event
  std::vector<uint32_t> joined_;         // by group
  struct Blocked {
    uint32_t worker;
    uint32_t threshold;
  };
  std::vector<std::vector<Blocked>> blocked_;  // by event
  std::vector<uint64_t> lowest_blocked_;       // lowest threshold there
  std::vector<uint32_t> next_slot_;
  std::vector<uint32_t> ready_;  // workers to look at
  std::vector<bool> started_;
  std::vector<StuckWorker> stuck_;
  std::vector<uint32_t> scratch_;
  bool is_undecided_ = false;
  bool has_guessed_ = false;  // this pass used a clock of the pass before
  bool has_changed_ = false;
  uint32_t num_passes_ = 0;
};

}  // namespace megartp::verify
