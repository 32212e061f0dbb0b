// The abstract device of launch_explore.h: one state, the steps that can happen in it, and what they race with.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "verify/launch/launch_explore.h"

namespace megartp::launch {

class Machine {
 public:
  struct State {
    std::vector<uint16_t> ctas;      // bits of StepKind that each CTA has done; CTAs of a node stand together
    std::vector<uint32_t> seen;      // of a node: moments of others that its threads see from the start on
    std::vector<uint32_t> message;   // ... that its fences before the trigger pass on
    std::vector<uint32_t> snapshot;  // ... that were over when it completed
    uint32_t complete = 0;           // nodes
    uint32_t global = 0;             // moments that every thread sees
    bool operator==(const State&) const = default;
  };
  // `cta` counts over all nodes; of kComplete it is the node's first.
  struct Move {
    uint32_t node = 0;
    uint32_t cta = 0;
    StepKind kind = StepKind::kStart;
  };

  Machine(const Graph& graph, uint32_t max_ctas);

  State initial() const;
  bool can(const State& s, const Move& m) const;
  // Does it and marks what it races with.
  void apply(State& s, const Move& m, std::vector<char>& is_race) const;
  // All moves that may happen; those of touching memory and completing only, once the others are exhausted.
  std::vector<Move> moves(const State& s) const;
  // Does the moves that touch no memory until none is left. The choice to skip a wait is not one of them.
  void settle(State& s) const;
  // CTAs of a node are alike: sorts them.
  void normalise(State& s) const;

  const std::vector<Conflict>& conflicts() const { return conflicts_; }
  uint32_t first_cta(uint32_t node) const { return first_cta_[node]; }
  uint32_t num_ctas(uint32_t node) const { return first_cta_[node + 1] - first_cta_[node]; }

 private:
  static constexpr uint16_t bit(StepKind kind) { return static_cast<uint16_t>(1U << static_cast<uint32_t>(kind)); }
  static uint32_t moment(uint32_t node, Moment m) { return 1U << (2 * node + static_cast<uint32_t>(m)); }
  bool all_ctas(const State& s, uint32_t node, uint16_t any_of) const;
  bool has_fired(const State& s, uint32_t node) const;
  bool can_start(const State& s, uint32_t node) const;
  bool can_wait(const State& s, uint32_t node) const;
  bool can_exit(uint16_t done, uint32_t node) const;
  bool has_decided(uint16_t done, uint32_t node) const;
  // Moments that are over in this state.
  uint32_t over(const State& s) const;
  void start(State& s, uint32_t node) const;
  void touch(const State& s, uint32_t node, StepKind group, std::vector<char>& is_race) const;
  bool is_better_later(const State& s, const Move& m) const;
  bool has_happened(const State& s, uint32_t node, StepKind group) const;

  const Graph& graph_;
  std::vector<Conflict> conflicts_;
  std::vector<std::vector<Edge>> in_;
  std::vector<uint32_t> first_cta_;
  std::vector<uint16_t> groups_;                 // of a node: kinds of accesses that it has
  std::vector<std::vector<StepKind>> group_of_;  // of a node's accesses
  bool tracks_sight_ = false;                    // some access precedes a wait, so what is seen matters
};

}  // namespace megartp::launch
