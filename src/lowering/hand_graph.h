// For tests of what comes after events are derived: task graphs whose events are given by hand or at random.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "lowering/box_stage.h"

namespace megartp::lowering::testing {

struct HandGraph {
  TaskGraph tasks;

  // A stage without regions; returns its first task.
  uint32_t add_stage(const std::string& name, uint32_t num_tiles, uint32_t opcode = 0x7f000001) {
    return add_stage(name, std::vector<BoxTile>(num_tiles), opcode);
  }
  uint32_t add_stage(const std::string& name, std::vector<BoxTile> tiles, uint32_t opcode = 0x7f000001) {
    const auto first = static_cast<uint32_t>(tasks.tasks.size());
    auto stage = std::make_unique<BoxStage>(name, std::move(tiles));
    stage->opcode = opcode;
    for (uint32_t t = 0; t < stage->num_tiles; ++t) {
      Task& task = tasks.tasks.emplace_back();
      task.stage = static_cast<uint32_t>(tasks.stages.size());
      task.tile = t;
    }
    tasks.op_names.push_back(name);
    tasks.op_kinds.emplace_back("box");
    TaskStage& added = tasks.stages.emplace_back();
    added.op = static_cast<OpId>(tasks.op_names.size() - 1);
    added.first_task = first;
    added.spec_id = static_cast<uint32_t>(tasks.specs.size());
    added.stage = std::move(stage);
    tasks.specs.push_back({opcode});
    return first;
  }

  // One signal per signaller; a join group's tasks are given all together.
  uint32_t add_event(std::span<const uint32_t> signallers, std::span<const uint32_t> waiters) {
    const auto id = static_cast<uint32_t>(tasks.events.size());
    Event event;
    event.threshold = static_cast<uint32_t>(signallers.size());
    event.num_consumers = static_cast<uint32_t>(waiters.size());
    event.first_part = static_cast<uint32_t>(tasks.event_parts.size());
    std::map<uint32_t, std::vector<uint32_t>> units;  // by stage
    for (const uint32_t t : signallers) {
      Task& task = tasks.tasks[t];
      units[task.stage].push_back(task.tile);
      task.signals[task.num_signals++] = abi::make_signal(id, 1, 0);
    }
    for (auto& [stage, tiles] : units) {
      std::ranges::sort(tiles);
      const auto first = static_cast<uint32_t>(tasks.unit_intervals.size());
      for (const uint32_t t : tiles) {
        if (tasks.unit_intervals.size() > first && tasks.unit_intervals.back().end == t)
          ++tasks.unit_intervals.back().end;
        else
          tasks.unit_intervals.push_back({t, t + 1});
      }
      tasks.event_parts.push_back({stage, 0, first, static_cast<uint32_t>(tasks.unit_intervals.size()) - first});
      ++event.num_parts;
    }
    if (!units.empty()) event.producer_stage = units.begin()->first;
    for (const uint32_t t : waiters) {
      Task& task = tasks.tasks[t];
      task.waits[task.num_waits++] = {id, event.threshold};
    }
    tasks.events.push_back(event);
    return id;
  }
  uint32_t add_event(std::initializer_list<uint32_t> signallers, std::initializer_list<uint32_t> waiters) {
    return add_event(std::span(signallers.begin(), signallers.size()), std::span(waiters.begin(), waiters.size()));
  }
};

inline std::vector<uint32_t> task_range(uint32_t first, uint32_t count) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Evenly from [low, high) however far a property has come: rapidcheck's own ranges start out narrow.
template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}

struct RandomGraphOptions {
  uint32_t max_waits = 1;
  uint32_t max_signals = 1;
  bool ids_follow_dependencies = false;  // otherwise any task may depend on any other, without a circle
};

// Events over tasks in a random order: each counts some earlier tasks and releases some later ones.
inline HandGraph random_hand_graph(const RandomGraphOptions& options) {
  HandGraph g;
  const int num_stages = pick(1, 6);
  for (int s = 0; s < num_stages; ++s) g.add_stage("S" + std::to_string(s), pick<uint32_t>(1, 9));
  auto rank = task_range(0, static_cast<uint32_t>(g.tasks.tasks.size()));
  if (!options.ids_follow_dependencies)
    for (size_t i = rank.size(); i > 1; --i) std::swap(rank[i - 1], rank[pick<size_t>(0, i)]);
  const int num_events = pick(0, static_cast<int>(rank.size()) + 1);
  for (int e = 0; e < num_events; ++e) {
    const auto cut = pick<size_t>(0, rank.size() + 1);
    const int thin = pick(1, 5);
    std::vector<uint32_t> signallers;
    std::vector<uint32_t> waiters;
    for (size_t i = 0; i < rank.size(); ++i) {
      const Task& task = g.tasks.tasks[rank[i]];
      if (pick(0, thin) != 0) continue;
      if (i < cut && task.num_signals < options.max_signals) signallers.push_back(rank[i]);
      if (i >= cut && task.num_waits < options.max_waits) waiters.push_back(rank[i]);
    }
    if (signallers.empty() || waiters.empty()) continue;
    g.add_event(signallers, waiters);
  }
  return g;
}

}  // namespace megartp::lowering::testing
