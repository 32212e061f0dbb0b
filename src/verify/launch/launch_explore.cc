#include "verify/launch/launch_explore.h"

#include <unordered_set>

#include <fmt/format.h>

#include "verify/launch/launch_machine.h"

namespace megartp::launch {
namespace {

using State = Machine::State;

struct StateHash {
  size_t operator()(const State& s) const {
    uint64_t h = 0xcbf29ce484222325U;
    const auto mix = [&h](uint64_t v) {
      h = (h ^ v) * 0x9e3779b97f4a7c15U;
      h ^= h >> 29;
    };
    for (const uint16_t c : s.ctas) mix(c);
    for (const auto* masks : {&s.seen, &s.message, &s.snapshot})
      for (const uint32_t m : *masks) mix(m);
    mix(s.complete);
    mix(s.global);
    return static_cast<size_t>(h);
  }
};

Status check_size(const Graph& graph) {
  if (graph.nodes.size() <= kMaxExploredNodes) return {};
  return make_error(ErrorCode::kUnsupported, fmt::format("{} nodes, more than the {} that can be run in every order",
                                                         graph.nodes.size(), kMaxExploredNodes));
}

}  // namespace

Result<Exploration> explore(const Graph& graph, const ExploreOptions& options) {
  MEGARTP_TRY(check_size(graph));
  const Machine machine(graph, options.max_ctas);
  std::vector<char> is_race(machine.conflicts().size(), 0);
  std::unordered_set<State, StateHash> seen;
  std::vector<State> stack;
  Exploration out;
  const auto push = [&](State s) {
    if (options.is_reduced) machine.settle(s);
    machine.normalise(s);
    if (seen.size() >= options.max_states) {
      out.is_complete = false;
      return;
    }
    if (seen.insert(s).second) stack.push_back(std::move(s));
  };
  push(machine.initial());
  while (!stack.empty()) {
    const State s = std::move(stack.back());
    stack.pop_back();
    for (const Machine::Move& m : machine.moves(s)) {
      State next = s;
      machine.apply(next, m, is_race);
      push(std::move(next));
    }
  }
  out.num_states = seen.size();
  for (size_t i = 0; i < is_race.size(); ++i)
    if (is_race[i] != 0) out.races.push_back(machine.conflicts()[i]);
  return out;
}

Result<bool> replay_story(const Graph& graph, const Conflict& conflict, std::span<const Step> steps) {
  MEGARTP_TRY(check_size(graph));
  const Machine machine(graph, 1);
  State s = machine.initial();
  std::vector<char> is_race;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Machine::Move m{steps[i].node, machine.first_cta(steps[i].node), steps[i].kind};
    if (!machine.can(s, m))
      return make_error(ErrorCode::kInternal,
                        fmt::format("step {} ('{}') of the story cannot happen yet", i + 1, steps[i].text));
    is_race.assign(machine.conflicts().size(), 0);
    machine.apply(s, m, is_race);
  }
  for (size_t i = 0; i < is_race.size(); ++i) {
    const Conflict& c = machine.conflicts()[i];
    if (is_race[i] != 0 && c.first == conflict.first && c.first_access == conflict.first_access &&
        c.second == conflict.second && c.second_access == conflict.second_access)
      return true;
  }
  return false;
}

}  // namespace megartp::launch
